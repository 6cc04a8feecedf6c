"""How sure a choice of units is: chosen in how many folds, and in how many bootstrap draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import numpy as np

from residual_audio.adaptation.comparison import Outcome
from residual_audio.adaptation.divisions import Division, Split, splits_of
from residual_audio.adaptation.methods.in_encoder import lesson_of
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.engine.cores import on_single_cores
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.edit_size import times_chosen
from residual_audio.reweight.few import most_worth
from residual_audio.reweight.path import StrengthPath
from residual_audio.table import Table, from_rows


class TimesChosen(TypedDict):
    """One unit."""

    unit: str
    folds: int
    """In which its gains moved."""
    draws: float
    """Share of bootstrap draws, over all folds, in which they moved."""


def chosen_table(
    problem: Problem,
    folds: Folds,
    main: Outcome,
    how: Division,
    n_draws: int,
    progress: Progress = SILENT,
) -> Table:
    """Every unit of the main method; groups of the training parts are drawn with replacement."""
    method = main.entry.method
    if not isinstance(method, ResiDual):
        raise InputError(f"'{main.entry.label}' chooses no units")
    splits = list(splits_of(problem, folds, how))
    progress.step("bootstrap draws", len(splits), "folds")
    counts: dict[str, int] = {}

    def some(jobs: Iterator[int]) -> None:
        for job in jobs:
            strength = float(main.notes[splits[job].name]["strength"])
            here = problem.on(splits[job].fit, splits[job].held_out)
            n = sum(times_chosen([main.gains[splits[job].name]]).values())
            choice = (strength, n) if np.isfinite(strength) else None
            for unit in _drawn(here, splits[job], method, choice, n_draws):
                counts[unit] = counts.get(unit, 0) + 1
            progress.advance()

    on_single_cores(some, len(splits))
    rows: list[TimesChosen] = [
        {"unit": unit, "folds": n, "draws": counts.get(unit, 0) / (n_draws * len(splits))}
        for unit, n in times_chosen(list(main.gains.values())).items()
    ]
    rows.sort(key=lambda row: (-row["folds"], -row["draws"], row["unit"]))
    note = f"{len(splits)} folds, {n_draws} draws of groups in each, chosen as in the fold"
    return from_rows("adapted_chosen", rows, "How often a unit is chosen", (note,))


def _drawn(
    problem: Problem,
    split: Split,
    method: ResiDual,
    choice: tuple[float, int] | None,
    n_draws: int,
) -> list[str]:
    """Units chosen, once for each draw that chooses them: at the strength of the fold, or (few) as
    many as the fold has."""
    if choice is None:
        return []
    strength, n = choice
    terms, lesson = method.terms(problem, split), lesson_of(problem, split, method.objective)
    names = np.asarray(problem.groups)[split.train]
    groups, number = np.unique(names, return_inverse=True)
    rng = np.random.default_rng(split.seed)
    owner, found = terms.owner(), list[str]()
    for _ in range(n_draws):
        times = np.bincount(rng.integers(len(groups), size=len(groups)), minlength=len(groups))
        rows = np.repeat(split.train, times[number])
        loss = lesson.loss(terms, problem.head, rows)
        if method.chooses_few:
            units = most_worth(loss, problem.head, n, method.few)
        else:
            x = StrengthPath(loss, method.regularity).at(strength).x
            units = np.unique(owner[x != 0]).tolist()
        found += [terms.units[unit] for unit in units]
    return found
