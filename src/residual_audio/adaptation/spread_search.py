"""A sweep with its outer folds side by side: in processes, or on a Ray cluster.

A fold's study is its own, in a file of its own, so folds need nothing of each other; a worker that
is lost loses no finished trial.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from residual_audio.adaptation.divisions import Division, folds_of
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.search import Searched, sweep
from residual_audio.data.splits import Folds
from residual_audio.engine import Where, open_engine
from residual_audio.progress import SILENT, Progress


@dataclass(frozen=True)
class SweepJob:
    """What every worker is told."""

    problem: Callable[[], Problem]
    """Loads what is searched, where the work is done."""
    storage: Path
    n_trials: int
    n_folds: int
    seed: int


class SweepWorker:
    """The problem, loaded once, and its folds."""

    def __init__(self, job: SweepJob) -> None:
        self.job = job
        self.problem = job.problem()
        self.folds: Folds = folds_of(self.problem.clips, job.n_folds, job.seed)


def sweep_folds(
    job: SweepJob, names: tuple[str, ...], where: Where, progress: Progress = SILENT
) -> Searched:
    """A study an outer fold, wherever there is a worker for it; the same result as one by one."""
    progress.step("sweeping", len(names), "folds")
    parts: dict[int, Searched] = {}
    with open_engine(where) as engine:
        for done in engine.run(names, partial(SweepWorker, job), _search):
            if done.error is not None:
                raise done.error
            parts[done.number] = done.result
            progress.advance()
    ordered = [parts[number] for number in range(len(names))]
    return Searched(
        [row for part in ordered for row in part.trials],
        [row for part in ordered for row in part.folds],
    )


def _search(worker: SweepWorker, name: str) -> Searched:
    job = worker.job
    how = replace(Division(seed=job.seed), only=(name,))
    return sweep(worker.problem, worker.folds, job.storage, n_trials=job.n_trials, how=how)
