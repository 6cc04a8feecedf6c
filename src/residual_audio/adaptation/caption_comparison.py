"""Adaptation to captions judged on grouped folds: R@1, 5, 10 both ways, before and after."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch

from residual_audio.adaptation.caption_ranks import (
    COUNTS,
    DIRECTIONS,
    KS,
    Asked,
    Count,
    Direction,
    Ranks,
    chance_of,
    put,
    ranks_of,
    untested,
)
from residual_audio.adaptation.divisions import Division, splits_of
from residual_audio.adaptation.methods.registry import REFERENCE, Entry
from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.metrics.uncertainty import mean_interval, paired_difference
from residual_audio.progress import SILENT, Progress
from residual_audio.types import FloatArray, Gains

EVERY_FOLD = "all"


@dataclass
class CaptionOutcome:
    """One method over all folds."""

    entry: Entry
    ranks: Ranks
    n_parameters: int = 0
    seconds: list[float] = field(default_factory=list)
    """To fit, a fold."""
    gains: dict[str, Gains] = field(default_factory=dict)
    """By fold."""
    notes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    failed: str | None = None


class Recall(TypedDict):
    """One method, direction and k: how many queries have a right answer among the first k."""

    method: str
    kind: str
    parameters: int
    fold: str
    """A fold that was tested, or `all` of them."""
    direction: Direction
    k: int
    count: Count
    before: float
    recall: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    p: float
    n: int
    """Queries."""
    chance: float
    key: str


def compare_on_captions(
    problem: Problem,
    folds: Folds,
    entries: Sequence[Entry],
    *,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[CaptionOutcome]:
    """Fit every method without a fold, then rank the captions and clips of that fold.

    A method that cannot be fitted becomes an outcome that says why; the others go on.
    """
    asked = Asked.of(problem)
    found = [CaptionOutcome(entry, untested(asked, len(problem))) for entry in entries]
    for split in splits_of(problem, folds, Division(seed=seed, allow_missing=True)):
        running = [outcome for outcome in found if not outcome.failed]
        progress.step(f"fold {split.name}", len(running), "methods")
        for outcome in running:
            start = time.perf_counter()
            try:
                with torch.enable_grad():
                    fitted = outcome.entry.method.fit(problem, split)
            except ResidualAudioError as error:
                outcome.failed = f"fold {split.name}: {error}"
                continue
            finally:
                progress.advance()
            outcome.seconds.append(time.perf_counter() - start)
            outcome.n_parameters = max(outcome.n_parameters, fitted.n_parameters)
            outcome.notes[split.name] = fitted.notes
            if fitted.gains is not None:
                outcome.gains[split.name] = fitted.gains
            put(outcome.ranks, ranks_of(asked, fitted.scores, split.test), asked, split.test)
        problem.forget()
    return found


def recalls(
    problem: Problem, folds: Folds, outcomes: Sequence[CaptionOutcome], *, seed: int = 0
) -> list[Recall]:
    """R@k of every method over all folds and in each, with the paired difference to before.

    Whole groups are drawn. Captions that several clips carry are also counted for their own only.
    """
    asked = Asked.of(problem)
    before = next((o for o in outcomes if o.entry.key == REFERENCE and not o.failed), None)
    if before is None:
        raise InputError("the comparison needs the method 'zero-shot' to compare with")
    counts = COUNTS if asked.shared else COUNTS[:1]
    parts: dict[str, list[int]] = {EVERY_FOLD: list(range(len(folds)))}
    parts |= {name: [fold] for fold, name in enumerate(folds.names)}
    out = []
    for name, only in parts.items():
        for direction, count, k in _measures(counts):
            part = _Part(problem, folds, asked, name, only)
            chance = chance_of(asked, folds, only, direction, count, k)
            base = part.hits(before.ranks[direction, count], direction, k)
            for outcome in outcomes:
                if outcome.failed:
                    continue
                same = outcome is before
                hits = base if same else part.hits(outcome.ranks[direction, count], direction, k)
                groups = part.groups(direction)
                low, high = mean_interval(hits, groups=groups, seed=seed)
                gap = paired_difference(hits, base, groups=groups, seed=seed)
                out.append(
                    Recall(
                        method=outcome.entry.label,
                        kind=outcome.entry.kind,
                        parameters=outcome.n_parameters,
                        fold=name,
                        direction=direction,
                        k=k,
                        count=count,
                        before=float(base.mean()),
                        recall=float(hits.mean()),
                        low=low,
                        high=high,
                        gain=gap.value,
                        gain_low=gap.low,
                        gain_high=gap.high,
                        p=gap.p,
                        n=len(hits),
                        chance=chance,
                        key=outcome.entry.key,
                    )
                )
    return out


def _measures(counts: Sequence[Count]) -> Iterator[tuple[Direction, Count, int]]:
    for direction in DIRECTIONS:
        for count in counts:
            for k in KS:
                yield direction, count, k


@dataclass(frozen=True)
class _Part:
    """The queries of some folds."""

    problem: Problem
    folds: Folds
    asked: Asked
    name: str
    only: Sequence[int]

    def clips(self, direction: Direction) -> np.ndarray:
        """[query] the clip it is about"""
        inside = np.isin(self.folds.assignment, self.only)
        if direction == "a2t":
            return np.flatnonzero(inside)
        return self.asked.owners[inside[self.asked.owners]]

    def groups(self, direction: Direction) -> list[str]:
        return [self.problem.groups[int(i)] for i in self.clips(direction)]

    def hits(self, ranks: FloatArray, direction: Direction, k: int) -> FloatArray:
        """[query] 1 where a right answer is among the first k."""
        inside = np.isin(self.folds.assignment, self.only)
        mine = ranks[inside if direction == "a2t" else inside[self.asked.owners]]
        return (mine <= k).astype(np.float64)
