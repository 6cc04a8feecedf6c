"""What several commands load before they work: data sets, models, the sounds behind a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from residual_audio.cli import options

if TYPE_CHECKING:
    from residual_audio.data.base import Dataset
    from residual_audio.models.clap import AudioTextModel
    from residual_audio.passes.kept import Passes
    from residual_audio.progress import Progress
    from residual_audio.store import Store
    from residual_audio.types import Result


@dataclass(frozen=True)
class ClipChoice:
    """Which clips of a data set are used."""

    folds: Sequence[str] | None = None
    limit: int | None = None
    sample: int | None = None
    seed: int = 0

    def of(self, whole: Dataset) -> Dataset:
        return whole.select(
            folds=self.folds or None, limit=self.limit, sample=self.sample, seed=self.seed
        )


def load_datasets(
    names: Sequence[str] | None,
    roots: Sequence[Path] | None,
    data_options: list[str] | None,
    part: ClipChoice,
) -> list[tuple[Dataset, str]]:
    """Data sets with the name of the part that is used."""
    from residual_audio.data.registry import dataset_card, load_dataset, needs_root, parse_name
    from residual_audio.errors import InputError

    given = options.parse_data_options(data_options)
    waiting = list(roots or [])
    names = names or (["folder"] * len(waiting) or ["synthetic"])
    needing = [name for name in names if needs_root(parse_name(name)[0])]
    if len(waiting) > len(needing):
        raise InputError(
            f"{len(waiting)} --root were given for {len(needing)} data sets that need one"
        )
    found = []
    for name in names:
        root = waiting.pop(0) if name in needing and waiting else None
        # with several data sets an option goes to those that know it
        known = set(dataset_card(parse_name(name)[0]).options)
        mine = given if len(names) == 1 else {k: v for k, v in given.items() if k in known}
        whole = load_dataset(name, root, **mine)
        data = part.of(whole)
        found.append((data, _split(part.folds, given.get("kind"), data)))
    return found


def _split(folds: Sequence[str] | None, kind: Any, data: Dataset) -> str:
    parts = [str(kind)] if kind else []
    parts += [f"fold {'+'.join(folds)}"] if folds else []
    parts += [f"partial {len(data)} of {data.part_of}"] if data.part_of else []
    return ", ".join(parts) or "all"


def load_models(
    names: Sequence[str], device: str, gains: Path | None = None
) -> Iterator[AudioTextModel]:
    """One at a time, so that several large models need not fit into memory together."""
    for name in dict.fromkeys(names):
        yield load_model_with(name, device, gains)


def load_model_with(name: str, device: str, gains: Path | None = None) -> AudioTextModel:
    """A model by name, with gains at work in every pass if there are any."""
    from residual_audio.models.registry import load_model

    if gains is None:
        return load_model(name, device)
    from residual_audio.surface.given import given_gains
    from residual_audio.surface.model import Model

    found = given_gains(gains)  # read before the model is: a wrong file costs nothing
    return Model.of(load_model(name, device)).with_edit(found)


def adapted(found: Result, gains: Path | None, data: Dataset, folds: Sequence[str] = ()) -> Result:
    """A result with gains under its own name; says so where they have seen the clips."""
    if gains is None:
        return found
    from residual_audio.surface.given import given_gains
    from residual_audio.surface.measured import adapted_result

    result = adapted_result(found, given_gains(gains), data, folds)
    if seen := result.details["gains"]["seen"]:
        typer.echo(f"note: {seen}", err=True)
    return result


def load_passes_of(
    store: Store,
    rows: Any,
    model: str | None,
    root: Path | None,
    data_option: list[str] | None,
    device: str,
    progress: Progress,
) -> Passes:
    """The model and data set that a store was made from, and the features of its clips."""
    from residual_audio.data.registry import load_dataset
    from residual_audio.data.remembered import recall_source
    from residual_audio.errors import InputError
    from residual_audio.extraction.same_data import check_same_data
    from residual_audio.models.registry import load_model
    from residual_audio.passes.kept import load_passes
    from residual_audio.passes.loop import Hearing

    loaded = load_model(model or store.model_info.name, device)
    known = recall_source(store.folder.parent, store.dataset_info.name)
    given = known.options | options.parse_data_options(data_option)
    dataset = load_dataset(known.dataset, root or known.root, **given)
    # sounds made on demand have the same names whatever their seed
    recipe = (store.provenance.get("dataset") or {}).get("recipe") or dataset.recipe
    if dataset.recipe != recipe:
        raise InputError(
            f"the store was made from '{recipe}', this is '{dataset.recipe}': give the same "
            "--data-option as then"
        )
    check_same_data(store, dataset)
    ids = [str(store.clips["id"][i]) for i in (range(len(store)) if rows is None else rows)]
    heard = Hearing(store.run_info.long, batch_size=16)
    sha256 = store.model_info.sha256
    return load_passes(loaded, dataset, ids, heard, sha256=sha256, progress=progress)
