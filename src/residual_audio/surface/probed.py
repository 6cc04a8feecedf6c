"""The shape of a joint space, of one model or of several beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt

from residual_audio.drawing import notes_in
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.errors import InputError
from residual_audio.geometry.cards import ModelCard
from residual_audio.geometry.cards import compare as compare_clouds
from residual_audio.geometry.cloud_sources import clouds_of_files, clouds_of_model, clouds_of_run
from residual_audio.geometry.clouds import Clouds
from residual_audio.geometry.probes import N_HALVES, probe_matched
from residual_audio.progress import SILENT, Progress
from residual_audio.provenance import collect
from residual_audio.surface.given import (
    DatasetLike,
    GainsLike,
    ModelLike,
    given_dataset,
    given_model,
)
from residual_audio.surface.measured import (
    EvaluateOptions,
    chosen_part,
    embedding_of,
    with_changes,
)
from residual_audio.surface.runs import Run
from residual_audio.table import Table
from residual_audio.types import Result


def probe(
    source: ModelLike | Run | Path,
    dataset: DatasetLike | None = None,
    *,
    root: str | Path | None = None,
    gains: GainsLike | None = None,
    n_halves: int = N_HALVES,
    progress: Progress = SILENT,
    **options: Unpack[EvaluateOptions],
) -> Result:
    """The shape of the joint space: ranks, dimensions, modality gap, uniformity, hubness …

    Of a model on a data set, or of a run (no model is loaded).

    >>> import residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=40)
    >>> ra.probe("nano", sounds, n_halves=4, cache=False)["rankme_audio"].n
    40
    """
    if isinstance(source, Run | Path):
        clouds = clouds_of(source)
    elif dataset is None:
        raise InputError("a model is probed on a data set: give one, or give a run")
    else:
        clouds = model_clouds(source, dataset, root=root, gains=gains, progress=progress, **options)
    seed = options.get("seed", 0)
    return probe_matched([clouds], n_halves=n_halves, seed=seed, progress=progress)[0]


def model_clouds(
    model: ModelLike,
    dataset: DatasetLike,
    *,
    root: str | Path | None = None,
    gains: GainsLike | None = None,
    progress: Progress = SILENT,
    **options: Unpack[EvaluateOptions],
) -> Clouds:
    """Vectors of the clips of a data set and of what is said of them."""
    loaded = with_changes(given_model(model), gains)
    data, split = chosen_part(given_dataset(dataset, root), options)
    prompts = find_prompts(options.get("prompts", "dataset"), data.template)
    how = embedding_of(options)
    return clouds_of_model(loaded, data, prompts, split=split, embedding=how, progress=progress)


def clouds_of(source: Run | Path, text: Path | None = None) -> Clouds:
    """The same from a run, or from files of embeddings."""
    if isinstance(source, Run):
        return clouds_of_run(source.folder)
    return clouds_of_run(source) if source.is_dir() else clouds_of_files(source, text)


@dataclass(frozen=True, repr=False)
class ModelCards:
    """One card a model on the same clips; `ra.compare` gives it.

    >>> import residual_audio as ra
    >>> found = ra.compare(["nano"], ra.load_dataset("synthetic", n_clips=20), cache=False)
    >>> len(found.cards), found.cards[0].model
    (1, 'nano')
    """

    cards: tuple[ModelCard, ...]
    dataset: str
    split: str
    clouds: tuple[Clouds, ...]
    seed: int = 0

    @cached_property
    def table(self) -> Table:
        """One row a number, one column a model, and how far each is from the first."""
        first, *others = self.cards
        names = list(first.numbers)
        columns = {"number": np.array(names), first.model: _column(first, names)}
        for card in others:
            columns[card.model] = _column(card, names)
            away = columns[card.model] - columns[first.model]
            columns[f"{card.model} − {first.model}"] = away
        verdicts = tuple(f"{card.model}: {card.verdict}" for card in self.cards)
        notes = tuple(f"{c.model}: {what}: {why}" for c in self.cards for what, why in c.findings)
        caption = f"{' and '.join(c.model for c in self.cards)} on {self.dataset}"
        return Table("cards", columns, caption, (*verdicts, *notes, *self.remarks))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Where a model heard these clips in its training; clips that are left out or odd."""
        return tuple(
            f"{cloud.model} on {cloud.dataset}: {note}"
            for cloud in self.clouds
            for note in notes_in(cloud.provenance)
        )

    @property
    def skipped(self) -> dict[str, str]:
        """Clips that could not be heard, and why."""
        return {k: v for c in self.clouds for k, v in (c.provenance.get("skipped") or {}).items()}

    def document(self) -> dict[str, object]:
        """All of it as JSON can say it."""
        cards = [
            asdict(card)
            | {
                "verdict": card.verdict,
                "findings": [{"what": what, "why": why} for what, why in card.findings],
            }
            for card in self.cards
        ]
        models = [cloud.provenance.get("model") for cloud in self.clouds]
        dataset = self.clouds[0].provenance.get("dataset")
        return {
            "dataset": self.dataset,
            "split": self.split,
            "cards": cards,
            "notes": list(self.remarks),
            "skipped": self.skipped,
            "provenance": {**collect(seed=self.seed, models=models), "dataset": dataset},
        }

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def _column(card: ModelCard, names: Sequence[str]) -> npt.NDArray[np.float64]:
    return np.array([card.numbers[name] for name in names])


def compare(
    models: Iterable[ModelLike],
    dataset: DatasetLike,
    *,
    root: str | Path | None = None,
    progress: Progress = SILENT,
    **options: Unpack[EvaluateOptions],
) -> ModelCards:
    """Where each model fails on the same clips, by rule and by scale-free numbers.

    >>> import residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=40)
    >>> model = ra.load_model("nano")
    >>> without = model.with_edit({"s3": ra.zero()})
    >>> found = ra.compare([model, without], sounds, cache=False)
    >>> list(found.table.columns)[:3]
    ['number', 'nano', 'nano + zero(s3)']
    """
    data = given_dataset(dataset, root)
    clouds: Sequence[Clouds] = [
        model_clouds(model, data, progress=progress, **options) for model in models
    ]
    if not clouds:
        raise InputError("there is no model to compare")
    seed = options.get("seed", 0)
    cards = compare_clouds(clouds, seed=seed)
    return ModelCards(tuple(cards), data.name, clouds[0].split, tuple(clouds), seed)
