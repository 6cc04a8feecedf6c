"""What a model was trained on, and which clips of a data set it has therefore heard before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from residual_audio.data.base import Dataset
from residual_audio.errors import InputError
from residual_audio.types import Clip, HeardBefore


@dataclass(frozen=True)
class TrainingData:
    """One data set, or a part of one, that a model learned from."""

    dataset: str
    folds: tuple[str, ...] = ()
    """Only these; none named: all of it."""
    names: str = ""
    """A regular expression for the bare names of its files, by which they are known elsewhere."""
    recipe: str = ""
    """What the recipe of sounds made on demand contains: `kind=order seed=102`."""

    def __str__(self) -> str:
        part = f" folds {', '.join(self.folds)}" if self.folds else ""
        return f"{self.dataset}{part}{f' ({self.recipe.strip()})' if self.recipe else ''}"

    def holds(self, dataset: Dataset, clip: Clip) -> bool:
        """Whether a clip of that data set is in it."""
        if self.recipe:
            return self.recipe in dataset.recipe
        if self.names and re.fullmatch(self.names, Path(clip.id).stem):
            return True
        fold = "" if clip.fold is None else dataset.folds.get(clip.fold, str(clip.fold))
        return dataset.name == self.dataset and (not self.folds or fold in self.folds)


def heard_before(trained_on: Sequence[TrainingData] | None, dataset: Dataset) -> HeardBefore:
    """Compares clip by clip, by fold and by the names of files; where no clip was heard, but others
    of the same data set were, the note says that."""
    of = len(dataset.clips)
    if trained_on is None:
        return {"trained_on": None, "n": None, "of": of, "note": ""}
    parts = [part for part in trained_on if not part.recipe or part.recipe in dataset.recipe]
    n = sum(any(part.holds(dataset, clip) for part in parts) for clip in dataset.clips)
    note = ""
    if n:
        used = sorted({str(p) for p in parts for c in dataset.clips if p.holds(dataset, c)})
        note = (
            f"this model was trained on {n:,} of these {of:,} clips ({'; '.join(used)}): what it "
            "scores on them says nothing about sounds it has not heard"
        )
    elif alike := [str(part) for part in trained_on if part.dataset == dataset.name]:
        note = (
            f"this model was trained on other clips of the same kind ({'; '.join(alike)}): these "
            f"{of:,} are new to it, what they are like is not"
        )
    return {"trained_on": [str(part) for part in trained_on], "n": n, "of": of, "note": note}


def read_training_data(rows: Iterable[dict[str, Any]] | None) -> tuple[TrainingData, ...] | None:
    """From a model's config; None where it says nothing."""
    if rows is None:
        return None
    try:
        return tuple(TrainingData(**{**row, "folds": tuple(row.get("folds", ()))}) for row in rows)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"what it was trained on ('trained_on') is no list: {error}") from error


def training_data_record(
    trained_on: Sequence[TrainingData] | None,
) -> list[dict[str, object]] | None:
    """For a model's config."""
    return None if trained_on is None else [asdict(part) for part in trained_on]
