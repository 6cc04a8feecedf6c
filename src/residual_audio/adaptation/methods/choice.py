"""Choosing a number on held-out clips, for methods that have one to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.classification import true_rank
from residual_audio.types import FloatArray

Scores = Callable[[float, np.ndarray, np.ndarray], FloatArray]
"""(candidate, training clips, tested clips) → [tested clip, class]"""


def choose(
    candidates: Sequence[float], scores_of: Scores, problem: Problem, split: Split, default: float
) -> float:
    """The candidate with most held-out clips right; ties go to the better mean rank.

    With too few clips to hold any out, the default.
    """
    if not len(split.held_out):
        return default
    codes = problem.codes[split.held_out]

    def quality(candidate: float) -> tuple[float, float]:
        rank = true_rank(scores_of(candidate, split.fit, split.held_out), codes)
        return float((rank == 1).mean()), -float(np.log(rank).mean())

    return max(candidates, key=quality)


def unit_length(x: FloatArray) -> FloatArray:
    """Rows in float64, each of length 1."""
    x = np.asarray(x, np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
