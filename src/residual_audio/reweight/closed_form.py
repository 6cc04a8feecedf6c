"""Gains in closed form: least squares on the class scores, one linear system, no training.

With coordinates a [clip, k] and V [k, class] the change of each class score for a step along each
component (the joint head linearised), the scores are  S(λ) = S₀ + (a ∘ (λ − 1)) V.  The gains that
bring them nearest to targets Y, with a pull α towards 1, solve

    ((aᵀa) ∘ (V Vᵀ) + α I) (λ − 1) = [ aᵀ (Y − S₀) ∘ V ] 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve
from torch import Tensor

from residual_audio.reweight.terms import DirectTerms
from residual_audio.types import FloatArray


class LeastSquares:
    """The system for one training set."""

    def __init__(
        self, terms: DirectTerms, rows: np.ndarray, to_classes: FloatArray, start: FloatArray
    ) -> None:
        """`to_classes` [D, class] linearises the class scores, now `start` [clip, class]."""
        self._a = terms.amplitudes[rows].numpy().astype(np.float64)
        self._v = terms.axes.numpy().astype(np.float64) @ to_classes  # component class
        self._gram = (self._a.T @ self._a) * (self._v @ self._v.T)
        self._start = start

    def solve(self, targets: Sequence[FloatArray], alpha: float) -> list[Tensor]:
        """λ for each of the targets; α is relative to the mean diagonal of the system."""
        mean = float(np.trace(self._gram)) / len(self._gram)
        pulled = self._gram + alpha * mean * np.eye(len(self._gram))
        right = [(self._a * ((t - self._start) @ self._v.T)).sum(0) for t in targets]
        found = cho_solve(cho_factor(pulled, overwrite_a=True), np.stack(right, 1))
        return [torch.from_numpy((1.0 + one).astype(np.float32)) for one in found.T]


def centred_targets(codes: np.ndarray, n_classes: int, margin: float) -> FloatArray:
    """`margin` for the true class, less the mean: [clip, class]."""
    hot = np.eye(n_classes)[codes]
    return margin * (hot - hot.mean(1, keepdims=True))
