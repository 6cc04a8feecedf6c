"""Intervals of shares, and of changes of a share on the same items.

Values of 0 and 1 are not normal where nearly all of them are one of the two: Student's t and the
bootstrap then give intervals that are too narrow, or of no width at all ("none of 20 answers
changed: 0 [0, 0]" covers the truth in a third of studies). These come from tests that stay right:

- a share p of n items: Wilson's score interval, its near end below three items (above n − 3) moved
  to the Poisson limit χ²_{α,2x}/2n, where Wilson's covers too little (Brown, Cai, DasGupta 2001);
- a change (b answers gained, c lost, of n): Tango's (1998) score interval of paired shares.

Items of one group are not independent: n becomes the number of items that would be as sure were
they independent, n_eff = variance of independent items / variance between groups ≤ n, and z becomes
Student's t over groups. Where groups show no spread each counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics.few_groups import n_effective, variance_of_mean

Array = npt.NDArray[Any]
Groups = Sequence[object] | Array | None
FEW_ITEMS = 3
"""Up to so many of one kind, Wilson's near end is moved to the Poisson limit."""
_HALVINGS = 50


def wilson(successes: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, with the Poisson limit near 0 and 1; NaN for n = 0.

    >>> tuple(round(end, 3) for end in wilson(5, 10)), round(wilson(1, 100)[0], 5)
    ((0.237, 0.763), 0.00051)
    """
    if not 0 <= successes <= max(n, 0):
        raise InputError(f"{successes} successes of {n} make no proportion")
    return _score_interval(successes, n, float(stats.norm.ppf(0.5 + level / 2)), 1 - level)


def _score_interval(x: float, n: float, z: float, alpha: float) -> tuple[float, float]:
    if n == 0:
        return math.nan, math.nan
    p = x / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = centre - half, centre + half
    if 0 < x <= FEW_ITEMS:
        low = min(low, float(stats.chi2.ppf(alpha, 2 * x)) / (2 * n))
    if 0 < n - x <= FEW_ITEMS:
        high = max(high, 1 - float(stats.chi2.ppf(alpha, 2 * (n - x))) / (2 * n))
    # at the ends the bound is exact; rounding would leave 1 − 1e-16
    return (max(low, 0.0) if x > 0 else 0.0), (min(high, 1.0) if x < n else 1.0)


def share_interval(
    values: Array, groups: Groups = None, level: float = 0.95
) -> tuple[float, float]:
    """Interval of a share from values of 0 and 1; NaN below two groups.

    >>> tuple(round(end, 3) for end in share_interval(np.zeros(20)))
    (0.0, 0.161)
    """
    values = np.asarray(values, dtype=np.float64)
    p = float(values.mean()) if len(values) else math.nan
    n, quantile = _as_independent(values[:, None], groups, np.array([p * (1 - p)]), level)
    if math.isnan(n[0]):
        return math.nan, math.nan
    return _score_interval(p * float(n[0]), float(n[0]), float(quantile[0]), 1 - level)


def change_interval(
    changes: Array, groups: Groups = None, level: float = 0.95
) -> tuple[Array, Array]:
    """Interval of the mean of `changes` [item, …], each −1 (lost), 0 or 1 (gained).

    Tango's score test of a difference δ, gained b and lost c of n:
    (b − c − nδ) / √(n (2q + δ(1−δ))) with q the likeliest share of losses under δ.

    >>> low, high = change_interval(np.zeros(20))
    >>> round(float(low), 3), round(float(high), 3)
    (-0.161, 0.161)
    """
    changes = np.asarray(changes, dtype=np.float64)
    flat = changes.reshape(len(changes), -1)
    gained, lost = (flat > 0).mean(0), (flat < 0).mean(0)
    alone = gained + lost - (gained - lost) ** 2
    n, quantile = _as_independent(flat, groups, alone, level)
    known = ~np.isnan(n)
    ends = np.full((2, flat.shape[1]), np.nan)
    if known.any():
        b, c, m = (gained * n)[known], (lost * n)[known], n[known]
        ends[0, known] = -_upper_end(c, b, m, quantile[known])
        ends[1, known] = _upper_end(b, c, m, quantile[known])
    return ends[0].reshape(changes.shape[1:]), ends[1].reshape(changes.shape[1:])


def _upper_end(b: Array, c: Array, n: Array, z: Array) -> Array:
    """The largest δ that Tango's test does not refuse, by halving between the estimate and 1."""
    low, high = (b - c) / n, np.ones_like(n)
    for _ in range(_HALVINGS):
        delta = (low + high) / 2
        linear = -b - c + (2 * n - b + c) * delta
        root = np.sqrt(np.maximum(linear**2 + 8 * n * c * delta * (1 - delta), 0.0))
        q = (root - linear) / (4 * n)
        variance = n * (2 * q + delta * (1 - delta))
        inside = n * delta - (b - c) <= z * np.sqrt(np.maximum(variance, 0.0))
        low, high = np.where(inside, delta, low), np.where(inside, high, delta)
    return low


def _as_independent(
    values: Array, groups: Groups, alone: Array, level: float
) -> tuple[Array, Array]:
    """How many independent items would be as sure of each column's mean, and its quantile.

    `alone` is the variance of one item.
    """
    n_items = len(values)
    n_groups = n_items if groups is None else len(np.unique(np.asarray(groups)))
    normal = np.full(values.shape[1], stats.norm.ppf(0.5 + level / 2))
    if n_groups < 2:
        return np.full(values.shape[1], np.nan), normal
    if n_groups == n_items:
        return np.full(values.shape[1], float(n_items)), normal
    _, variance, degrees = variance_of_mean(values, groups)
    worth = n_effective(n_items, groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        n = np.where(variance > 0, np.minimum(alone / variance, n_items), worth)
    student = stats.t.ppf(0.5 + level / 2, degrees)
    return np.maximum(n, 1.0), np.where(variance > 0, student, normal)
