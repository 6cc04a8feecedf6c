"""Calibration: does a model that says 70% turn out right 70% of the time?

Conventions: `probabilities` [n, c], `labels` [n]. The calibration error is a mean of absolute
values, so it is above 0 for a calibrated model too, and the more so the fewer items a bin holds:
`calibrated_null` says by how much, `debiased` takes off what noise alone puts on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.metrics.classification import validate

Array = npt.NDArray[Any]
N_BINS = 15


@dataclass(frozen=True)
class Calibration:
    """An expected calibration error beside what it would be by noise alone."""

    error: float
    null: float
    """Mean of a calibrated model with the same confidences on as many items."""
    null_high: float
    """95% of such models stay below it."""
    p: float
    """Share of such models with as large an error."""
    debiased: float
    """Per bin the difference whose expected reading, noise included, is what was read."""


def expected_calibration_error(
    probabilities: Array, labels: Array, n_bins: int = N_BINS, counts: Array | None = None
) -> Array:
    """Σ_b (n_b / n) |accuracy_b − confidence_b|, equal-width bins of the largest probability."""
    confidence, correct = _answers(probabilities, labels)
    in_bin = _bins(confidence, n_bins)
    counts = np.ones((1, len(correct))) if counts is None else counts
    gap = counts @ (in_bin * (correct - confidence)[:, None])  # resample, bin
    return np.abs(gap).sum(1) / counts.sum(1)


def calibration(
    probabilities: Array,
    labels: Array,
    *,
    n_bins: int = N_BINS,
    n_draws: int = 500,
    seed: int = 0,
) -> Calibration:
    """The error, its null and what is left of it without noise."""
    confidence, correct = _answers(probabilities, labels)
    in_bin = _bins(confidence, n_bins)
    n = len(correct)
    gaps = np.abs((in_bin * (correct - confidence)[:, None]).sum(0))  # bin, times n
    error = float(gaps.sum() / n)
    drawn = np.random.default_rng(seed).random((n_draws, n)) < confidence
    null = np.abs((drawn - confidence) @ in_bin).sum(1) / n
    noise = np.sqrt((confidence * (1 - confidence)) @ in_bin)
    p = (int((null >= error * (1 - 1e-9)).sum()) + 1) / (n_draws + 1)
    left = float(unfold(gaps, noise).sum() / n)
    return Calibration(error, float(null.mean()), float(np.quantile(null, 0.95)), p, left)


def unfold(read: Array, noise: Array) -> Array:
    """The m ≥ 0 for which |N(m, noise²)| has the mean `read`; 0 where noise alone reads as much.

    >>> unfold(np.array([0.5, 5.0]), np.array([1.0, 1.0])).round(2).tolist()
    [0.0, 5.0]
    """
    s = np.where(noise > 0, noise, 1.0)
    m = read.astype(float)
    for _ in range(60):
        folded = s * np.sqrt(2 / np.pi) * np.exp(-((m / s) ** 2) / 2)
        folded += m * (1 - 2 * stats.norm.cdf(-m / s))
        m = np.maximum(m - (folded - read), 0.0)
    m = np.where(read <= noise * np.sqrt(2 / np.pi), 0.0, m)
    return np.where(noise > 0, m, read)


def _answers(probabilities: Array, labels: Array) -> tuple[Array, Array]:
    """Confidence of each answer, and whether it is right."""
    probabilities, labels = validate(probabilities, labels)
    return probabilities.max(1), (probabilities.argmax(1) == labels).astype(np.float64)


def _bins(confidence: Array, n_bins: int) -> Array:
    """[item, bin], 0 and 1."""
    inner = np.linspace(0, 1, n_bins + 1)[1:-1]
    return np.eye(n_bins)[np.searchsorted(inner, confidence, side="left")]
