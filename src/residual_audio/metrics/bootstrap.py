"""Bootstrap over clips: how much would a number move with another sample of recordings?

Resamples are drawn as counts (how often each item is taken), so that a mean, a covariance or a
class score of every resample is one matrix product. With `groups`, whole groups are drawn: two
takes of one recording are not two independent observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics.few_groups import FEW, cluster_t, n_effective

Array = npt.NDArray[Any]


def resample_counts(
    n: int,
    n_resamples: int,
    rng: np.random.Generator,
    groups: Sequence[object] | Array | None = None,
) -> Array:
    """How often each of `n` items is drawn in each resample: integers [n_resamples, n].

    Without groups every row sums to n; with groups a row holds as many whole groups as there are,
    so its sum varies with their sizes.
    """
    if n < 1 or n_resamples < 1:
        raise InputError(f"cannot draw {n_resamples} resamples of {n} items: both must be positive")
    if groups is None:
        draws = rng.integers(0, n, size=(n_resamples, n))
        return _count(draws, n)
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    if member.shape != (n,):
        raise InputError(f"{member.size} groups were given for {n} items")
    draws = rng.integers(0, len(names), size=(n_resamples, len(names)))
    return _count(draws, len(names))[:, member]


def half_samples(
    n: int,
    n_resamples: int,
    rng: np.random.Generator,
    groups: Sequence[object] | Array | None = None,
) -> Array:
    """Which items each random half holds: 0 or 1 [n_resamples, n]; with groups, half of the groups.

    Halves drawn without replacement vary about the whole as the whole does about the truth, and
    hold no duplicates. A resample with replacement holds 63% of the items, some twice: it lowers
    every rank, and its interval may exclude the very estimate it is of.
    """
    names, member = (
        (np.arange(n), np.arange(n))
        if groups is None
        else np.unique(np.asarray(groups), return_inverse=True)
    )
    if member.shape != (n,) or n_resamples < 1:
        raise InputError(f"cannot halve {n} items of {member.size} groups {n_resamples} times")
    size = (len(names) + 1) // 2
    order = rng.permuted(np.tile(np.arange(len(names)), (n_resamples, 1)), axis=1)
    return (order < size).astype(np.int64)[:, member]


def spread_interval(
    value: Array, halves: Array, n_groups: int, level: float = 0.95
) -> tuple[Array, Array]:
    """`value` ± t × the standard deviation of its values on half-samples [resample, …].

    A half of m of G groups varies about the whole by √((G−m)/m) of what the whole varies by.
    """
    halves = np.asarray(halves, dtype=np.float64)
    if n_groups < 4:
        nothing = np.full(np.shape(value), np.nan)
        return nothing, nothing
    size = (n_groups + 1) // 2
    with np.errstate(invalid="ignore"):
        spread = np.nanstd(halves, axis=0, ddof=1) * np.sqrt(size / (n_groups - size))
    half = stats.t.ppf(0.5 + level / 2, n_groups - 1) * spread
    return np.asarray(value - half), np.asarray(value + half)


def _count(draws: Array, n: int) -> Array:
    n_resamples = len(draws)
    flat = draws + n * np.arange(n_resamples)[:, None]
    return np.bincount(flat.ravel(), minlength=n * n_resamples).reshape(n_resamples, n)


def percentile_interval(samples: Array, level: float = 0.95, axis: int = 0) -> tuple[Array, Array]:
    """Lower and upper end of the percentile interval along `axis`; NaN samples are left out."""
    if not 0 < level < 1:
        raise InputError(f"level {level} is not between 0 and 1")
    samples = np.asarray(samples, dtype=np.float64)
    shape = np.delete(np.array(samples.shape), axis)
    if samples.size == 0 or np.isnan(samples).all():
        return np.full(shape, np.nan), np.full(shape, np.nan)
    with np.errstate(invalid="ignore"):
        ends = np.nanquantile(samples, [(1 - level) / 2, (1 + level) / 2], axis=axis)
    return ends[0], ends[1]


def bootstrap_mean(
    values: Array,
    *,
    rng: np.random.Generator,
    n_resamples: int = 1000,
    level: float = 0.95,
    groups: Sequence[object] | Array | None = None,
) -> tuple[Array, Array]:
    """Interval of the mean over the first axis of `values` [n, …], NaN items left out of each.

    Percentiles, in one matrix product; below `few_groups.FEW` groups Student's t over groups.
    """
    values = np.asarray(values, dtype=np.float64)
    if n_effective(len(values), groups) < FEW:
        return cluster_t(values, groups, level)
    flat = values.reshape(len(values), -1)  # item, quantity
    counts = resample_counts(len(flat), n_resamples, rng, groups).astype(np.float64)
    known = ~np.isnan(flat)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (counts @ np.where(known, flat, 0.0)) / (counts @ known)
    low, high = percentile_interval(means, level)
    return low.reshape(values.shape[1:]), high.reshape(values.shape[1:])
