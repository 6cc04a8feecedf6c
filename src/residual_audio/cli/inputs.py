"""What several commands load before they work: data sets, models, the sounds behind a store."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.cli import options
from residual_audio.cli.output import say
from residual_audio.errors import InputError

if TYPE_CHECKING:
    from residual_audio.data.base import Dataset
    from residual_audio.surface.model import Model
    from residual_audio.surface.runs import Run
    from residual_audio.types import Gains


def load_datasets(
    names: Sequence[str] | None,
    roots: Sequence[Path] | None,
    data_options: list[str] | None,
) -> list[Dataset]:
    """Data sets by name; folders are given to those that need one, in order."""
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
        found.append(load_dataset(name, root, **mine))
    return found


def load_models(names: Sequence[str], device: str) -> Iterator[Model]:
    """One at a time, so that several large models need not fit into memory together."""
    for name in dict.fromkeys(names):
        yield load_model_with(name, device)


def read_gains(gains: Path | None) -> Gains | None:
    """Read before a model is: a wrong file costs nothing."""
    from residual_audio.surface.given import given_gains

    return None if gains is None else given_gains(gains)


def load_model_with(name: str, device: str, gains: Path | None = None) -> Model:
    """A model by name, with gains at work in every pass if there are any."""
    from residual_audio.surface.model import load_model

    found = read_gains(gains)
    loaded = load_model(name, device)
    return loaded if found is None else loaded.with_edit(found)


@contextmanager
def noting() -> Iterator[None]:
    """What functions warn of becomes a note on the terminal."""
    from residual_audio.errors import Remark

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Remark)
        yield
    for one in caught:
        if issubclass(one.category, Remark):
            say(f"note: {one.message}", err=True)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def given_run(run: Path, root: Path | None = None, data_option: list[str] | None = None) -> Run:
    """A run, with what was said about where its clips lie."""
    from residual_audio.surface.runs import Run

    return Run(run, root=root, options=options.parse_data_options(data_option))


def given_bounds(text: str | None) -> tuple[float, float] | None:
    """Least and largest gain, as `0,4` or `0,inf`."""
    if not text:
        return None
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"'{text}' are no bounds: give two numbers, like 0,4 or 0,inf") from error
    return low, high
