"""Where the right answers of captioned clips come: captions asked for clips, clips for captions.

A caption that several clips carry is right for each of them (`shared`); counted as `own`, only the
clip it was written for is, as published tables have it. Candidates are those of one test part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from residual_audio.adaptation.caption_problem import captions_of
from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.metrics import ranks as metrics
from residual_audio.types import FloatArray

Direction = Literal["t2a", "a2t"]
Count = Literal["shared", "own"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
COUNTS: tuple[Count, ...] = get_args(Count)
KS = (1, 5, 10)
Ranks = dict[tuple[Direction, Count], FloatArray]
"""Rank of the best right answer of every query: every caption, or every clip."""


@dataclass(frozen=True)
class Asked:
    """Every caption of a problem as often as it was written, with the clip it was written for."""

    owners: np.ndarray
    """[caption] clip number"""
    texts: np.ndarray
    """[caption] place among the problem's texts"""
    said: tuple[str, ...]
    """[caption] in lower case"""

    @classmethod
    def of(cls, problem: Problem) -> Asked:
        place = {text: i for i, text in enumerate(problem.classes)}
        found = [(i, c) for i, clip in enumerate(problem.clips) for c in captions_of(clip)]
        return cls(
            np.array([i for i, _ in found], np.int64),
            np.array([place[c] for _, c in found], np.int64),
            tuple(c.lower() for _, c in found),
        )

    @property
    def shared(self) -> bool:
        """Whether a caption was written for several clips."""
        return len({(s, o) for s, o in zip(self.said, self.owners, strict=True)}) > len(
            set(self.said)
        )

    def within(self, test: np.ndarray) -> np.ndarray:
        """Numbers of the captions of these clips."""
        return np.flatnonzero(np.isin(self.owners, test))

    def relevant(self, test: np.ndarray, count: Count) -> list[tuple[int, ...]]:
        """For each caption of a test part, the places in it of the clips that it is right for."""
        place = {int(clip): i for i, clip in enumerate(test)}
        here = self.within(test)
        if count == "own":
            return [(place[int(self.owners[j])],) for j in here]
        described: dict[str, set[int]] = {}
        for j in here:
            described.setdefault(self.said[j], set()).add(place[int(self.owners[j])])
        return [tuple(sorted(described[self.said[j]])) for j in here]

    def queries(self, direction: Direction, n_clips: int) -> int:
        return len(self.said) if direction == "t2a" else n_clips


def ranks_of(asked: Asked, scores: FloatArray, test: np.ndarray) -> Ranks:
    """From cosines [test clip, text] of the problem, for the queries of a test part."""
    similarity = scores[:, asked.texts[asked.within(test)]]
    found: Ranks = {}
    for count in COUNTS:
        t2a, a2t = metrics.rank_both_ways(similarity, asked.relevant(test, count))
        found["t2a", count] = metrics.first_rank(t2a).astype(np.float64)
        found["a2t", count] = metrics.first_rank(a2t).astype(np.float64)
    return found


def untested(asked: Asked, n_clips: int) -> Ranks:
    """No query has a rank yet."""
    return {(d, c): np.full(asked.queries(d, n_clips), np.nan) for d in DIRECTIONS for c in COUNTS}


def put(into: Ranks, found: Ranks, asked: Asked, test: np.ndarray) -> None:
    """The ranks of a test part to their places among all queries."""
    for (direction, count), ranks in found.items():
        into[direction, count][asked.within(test) if direction == "t2a" else test] = ranks


def chance_of(
    asked: Asked, folds: Folds, only: Sequence[int], direction: Direction, count: Count, k: int
) -> float:
    """R@k of a random order, over all queries of these folds."""
    values, times = [], []
    for fold in only:
        test = folds.test(fold)
        relevant = asked.relevant(test, count)
        if direction == "t2a":
            n_items, right = len(test), np.array([len(clips) for clips in relevant])
        else:
            n_items = len(relevant)
            right = np.bincount([i for clips in relevant for i in clips], minlength=len(test))
        values.append(metrics.chance_recall_at_k(n_items, right, k))
        times.append(len(right))
    return float(np.average(values, weights=times))
