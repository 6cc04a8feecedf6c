"""Adaptation judged honestly: every method on the same grouped folds.

What a method chooses (axes, gains, epochs, strengths) it chooses on the training part of a fold;
the test part is scored once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from residual_audio.adaptation.divisions import Division, Split, splits_of
from residual_audio.adaptation.methods.elsewhere_embedding import by_gains
from residual_audio.adaptation.methods.method import Fitted, Method
from residual_audio.adaptation.methods.registry import Entry
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.references import Elsewhere, cost_there
from residual_audio.data.splits import Folds
from residual_audio.engine.cores import on_single_cores
from residual_audio.errors import ResidualAudioError
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.keep_in_place import Cost
from residual_audio.types import FloatArray, Gains


@dataclass
class Outcome:
    """One method over all folds and seeds."""

    entry: Entry
    scores: FloatArray
    """[seed, clip, class] on the fold in which a clip was tested; NaN where it was not."""
    n_parameters: int = 0
    seconds: list[float] = field(default_factory=list)
    """To fit, a fold and seed."""
    gains: dict[str, Gains] = field(default_factory=dict)
    """By fold, of the first seed."""
    notes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    """By fold: what it loses on reference clips."""
    failed: str | None = None


def compare(
    problem: Problem,
    folds: Folds,
    entries: Sequence[Entry],
    *,
    seeds: Sequence[int] = (0,),
    how: Division | None = None,
    references: Sequence[Elsewhere] = (),
    progress: Progress = SILENT,
) -> list[Outcome]:
    """Fit and score every method on every fold and seed, and say what it costs on references.

    A method that cannot be fitted becomes an outcome that says why; the others go on.
    """
    n, c = len(problem), len(problem.classes)
    outcomes = [Outcome(entry, np.full((len(seeds), n, c), np.nan)) for entry in entries]
    for i, seed in enumerate(seeds):
        for split in splits_of(problem, folds, replace(how or Division(), seed=seed)):
            running = [outcome for outcome in outcomes if not outcome.failed]
            progress.step(f"fold {split.name}", len(running), "methods")
            here = problem.on(split.fit, split.held_out)
            for outcome, (found, seconds) in _fit_all(here, split, running, progress):
                outcome.scores[i, split.test] = found.scores
                outcome.n_parameters = max(outcome.n_parameters, found.n_parameters)
                outcome.seconds.append(seconds)
                if i == 0:
                    outcome.notes[split.name] = found.notes
                    if found.gains is not None:
                        outcome.gains[split.name] = found.gains
                    outcome.costs[split.name] = _costs(outcome.entry.method, found, references)
            problem.forget()
    return outcomes


def _costs(method: Method, found: Fitted, references: Sequence[Elsewhere]) -> list[Cost]:
    """What a fitted method loses on references, as far as those can be heard as it hears."""
    embed = found.elsewhere if found.gains is None else by_gains(found.gains)
    if embed is None:
        return []
    there = [one for one in references if one.problem.streams or not method.runs_encoder]
    return [cost_there(one, embed, np.arange(len(one.problem))) for one in there]


def _fit_all(
    problem: Problem, split: Split, outcomes: Sequence[Outcome], progress: Progress
) -> list[tuple[Outcome, tuple[Fitted, float]]]:
    """Every method on one split, with its seconds: those without encoder side by side, one a
    core."""
    found: dict[int, tuple[Fitted, float]] = {}

    def fit(index: int) -> None:
        outcome = outcomes[index]
        start = time.perf_counter()
        try:
            with torch.enable_grad():
                fitted = outcome.entry.method.fit(problem, split)
            found[index] = fitted, time.perf_counter() - start
        except ResidualAudioError as error:
            outcome.failed = f"fold {split.name}: {error}"
        progress.advance()

    alone = [i for i, outcome in enumerate(outcomes) if outcome.entry.method.runs_encoder]
    small = [i for i in range(len(outcomes)) if i not in set(alone)]

    def some(jobs: Iterator[int]) -> None:
        for job in jobs:
            fit(small[job])

    with threadpool_limits(1, user_api="blas"):  # numpy would start threads in every thread
        on_single_cores(some, len(small))
    for index in alone:
        fit(index)
    return [(outcomes[index], found[index]) for index in sorted(found)]
