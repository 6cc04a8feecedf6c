"""How the clips of a problem are divided: folds, and the parts of one fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import (
    Folds,
    few_shot,
    grouped_split,
    official_or_grouped_folds,
)
from residual_audio.errors import InputError
from residual_audio.types import Clip


@dataclass(frozen=True)
class Split:
    """Clip numbers of one fold. `fit` and `held_out` together are the training part."""

    name: str
    fit: np.ndarray
    held_out: np.ndarray
    """Chooses epochs and hyper-parameters; empty where there are too few clips to spare any."""
    test: np.ndarray
    seed: int = 0
    """Of whatever a method draws at random."""

    @property
    def train(self) -> np.ndarray:
        return np.sort(np.concatenate([self.fit, self.held_out]))


@dataclass(frozen=True)
class Division:
    """How the training part of a fold is cut."""

    seed: int = 0
    held_out: float = 0.2
    """Share of the training part, in whole groups, that choices are made by."""
    shots: int | None = None
    """The training part is so many clips a class; with fewer than four there is nothing to spare
    for choices, and defaults are used."""
    only: tuple[str, ...] = ()
    """Names of the folds to make; none for all of them."""
    allow_missing: bool = False
    """A class that the training part lacks (its clips are all of one group) is an error, unless
    this is set: gains can do without it."""


@dataclass(frozen=True)
class _Numbered:
    """Clips of a store with their fold numbers, as the division into folds wants them."""

    clips: Sequence[Clip]
    folds: dict[int, str]


def folds_of(clips: Sequence[Clip], n_folds: int = 5, seed: int = 0) -> Folds:
    """Official folds where every clip has one and there are several, else grouped ones."""
    numbers = sorted({clip.fold for clip in clips if clip.fold is not None})
    stand_in: Any = _Numbered(clips, {n: str(n) for n in numbers})
    return official_or_grouped_folds(stand_in, n_folds, seed)


def splits_of(problem: Problem, folds: Folds, how: Division | None = None) -> Iterator[Split]:
    """Fold by fold: test part, and a training part with whole groups held out for choices."""
    how = Division() if how is None else how
    for fold, name in enumerate(folds.names):
        if how.only and name not in how.only:
            continue
        train, test = folds.train(fold), folds.test(fold)
        if how.shots is not None:
            part = [problem.clips[i] for i in train]
            train = train[few_shot(part, how.shots, how.seed)]
        if not how.allow_missing:
            _check_classes(problem, train, name)
        if how.shots is not None and how.shots < 4:
            yield Split(name, train, train[:0], test, how.seed)
            continue
        mask = grouped_split([problem.clips[i] for i in train], how.held_out, how.seed)
        yield Split(name, train[~mask], train[mask], test, how.seed)


def whole_split(problem: Problem, seed: int = 0, held_out: float = 0.2) -> Split:
    """Every clip is for training: for what is to be used elsewhere."""
    mask = grouped_split(problem.clips, held_out, seed)
    everyone = np.arange(len(problem))
    return Split("all", everyone[~mask], everyone[mask], everyone[:2], seed)


def _check_classes(problem: Problem, train: np.ndarray, fold: str) -> None:
    there = np.bincount(problem.codes[train], minlength=len(problem.classes))
    present = np.bincount(problem.codes, minlength=len(problem.classes)) > 0
    missing = [problem.classes[c] for c in np.flatnonzero((there == 0) & present)]
    if missing:
        raise InputError(
            f"the training part of fold '{fold}' has no clip of class '{missing[0]}'"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
            + ": use other folds, leave the class out, or allow it (--allow-missing)"
        )
