"""How sure is a number: intervals by group, paired differences, permutation tests, corrections.

A statistic is given as a function of counts [resample, item] (how often each item is drawn), so all
resamples of a chunk are one array expression. Whole groups are drawn: two takes of one recording
are not two independent observations. Everything random takes a seed or a Generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics.bootstrap import percentile_interval, resample_counts
from residual_audio.metrics.few_groups import FEW, cluster_t, expanded_tail, n_effective
from residual_audio.metrics.proportions import change_interval, share_interval

Array = npt.NDArray[Any]
Groups = Sequence[Any] | Array | None
Seed = int | np.random.Generator

# up to 8! = 40,320 orders are enumerated: the p value is then exact
EXACT_UP_TO = 8
_CHUNK = 4_000_000  # counts held at once


@dataclass(frozen=True, slots=True)
class Difference:
    """Of two paired means: a − b, its 95% interval, and the two-sided p of flipped signs."""

    value: float
    low: float
    high: float
    p: float
    n: int


@dataclass(frozen=True, slots=True)
class Correlation:
    """A coefficient with the p value of scipy's test and that of the permutation test."""

    value: float
    p: float
    p_permutation: float
    n: int


def bootstrap_counts(
    statistic: Callable[[Array], Array],
    n: int,
    *,
    groups: Groups = None,
    seed: Seed = 0,
    n_resamples: int = 1000,
) -> Array:
    """Resampled values [n_resamples, …] of `statistic(counts [b, n]) -> [b, …]`, in chunks."""
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK // max(n, 1))
    parts = []
    for start in range(0, n_resamples, step):
        counts = resample_counts(n, min(step, n_resamples - start), rng, groups)
        parts.append(np.asarray(statistic(counts.astype(np.float64)), dtype=np.float64))
    return np.concatenate(parts)


def interval(
    statistic: Callable[[Array], Array],
    n: int,
    *,
    groups: Groups = None,
    seed: Seed = 0,
    n_resamples: int = 1000,
    level: float = 0.95,
    centre: float | None = None,
) -> tuple[Any, Any]:
    """Percentile interval of a statistic of counts; NaN where there are fewer than two groups.

    With few groups more of the tails is kept, so that it is as wide as Student's t would be.
    `centre` is the statistic of the sample itself: the interval is moved by what resampling alone
    moved the median (a draw with replacement has ties, which raise average precision and
    calibration error).
    """
    if n_groups(n, groups) < 2:
        sample = np.asarray(statistic(np.ones((1, n))))[0]
        return np.full_like(sample, np.nan, dtype=float), np.full_like(sample, np.nan, dtype=float)
    values = bootstrap_counts(statistic, n, groups=groups, seed=seed, n_resamples=n_resamples)
    tail = expanded_tail(max(2.0, n_effective(n, groups)), level)
    low, high = percentile_interval(values, 1 - 2 * tail)
    if centre is None:
        return low, high
    bias = np.nanmedian(values, axis=0) - centre
    return low - bias, high - bias


def mean_interval(
    values: Array,
    *,
    groups: Groups = None,
    seed: Seed = 0,
    n_resamples: int = 1000,
    level: float = 0.95,
    shares: bool = True,
) -> tuple[float, float]:
    """Interval of a mean. Of values of 0 and 1 it is that of a share, unless the values are no
    `shares` of anything (four pieces of one voice each have a mean polyphony of 1, not of 0.51 to
    1); below `few_groups.FEW` groups it is Student's t over groups, above a bootstrap of them."""
    values = np.asarray(values, dtype=np.float64)
    values, groups = _known(values, groups)
    if n_groups(len(values), groups) < 2:
        return math.nan, math.nan
    if shares and bool(np.isin(values, (0.0, 1.0)).all()):
        return share_interval(values, groups, level)
    if n_effective(len(values), groups) < FEW:
        low, high = cluster_t(values, groups, level)
        return float(low), float(high)
    low, high = interval(
        lambda counts: counts @ values / counts.sum(1),
        len(values),
        groups=groups,
        seed=seed,
        n_resamples=n_resamples,
        level=level,
    )
    return float(low), float(high)


def how_made(n_resamples: int, of: str = "groups") -> str:
    """What a result says of its intervals.

    >>> how_made(1000)
    '95% over groups: shares by Wilson, means by t below 50, else 1000 bootstrap resamples'
    """
    means = f"means by t below {FEW}, else {n_resamples} bootstrap resamples"
    return f"95% over {of}: shares by Wilson, {means}"


def paired_difference(
    a: Array,
    b: Array,
    *,
    groups: Groups = None,
    seed: Seed = 0,
    n_resamples: int = 2000,
    n_flips: int = 10_000,
    level: float = 0.95,
) -> Difference:
    """Mean of a − b over the same items: the same draws serve both sides.

    p is that of `sign_flip`. The interval of answers (0 and 1 on both sides) is Tango's of paired
    shares; else below `few_groups.FEW` groups Student's t over groups, above a bootstrap of them.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise InputError(
            f"paired values must be two vectors of one length, not {a.shape}, {b.shape}"
        )
    answers = all(np.isin(side[~np.isnan(a - b)], (0.0, 1.0)).all() for side in (a, b))
    gap, groups = _known(a - b, groups)
    if a is b:  # nothing was compared
        return Difference(0.0, 0.0, 0.0, 1.0, len(gap))
    if n_groups(len(gap), groups) < 2:
        value = float(gap.mean()) if len(gap) else math.nan
        return Difference(value, math.nan, math.nan, math.nan, len(gap))
    if answers:
        low, high = change_interval(gap, groups, level)
    elif n_effective(len(gap), groups) < FEW:
        low, high = cluster_t(gap, groups, level)
    else:
        low, high = interval(
            lambda counts: counts @ gap / counts.sum(1),
            len(gap),
            groups=groups,
            seed=seed,
            n_resamples=n_resamples,
            level=level,
        )
    p = sign_flip(gap, groups=groups, n_flips=n_flips, seed=seed)
    return Difference(float(gap.mean()), float(low), float(high), float(p), len(gap))


def correlation(
    x: Array,
    y: Array,
    method: Literal["spearman", "pearson"] = "spearman",
    *,
    n_permutations: int = 10_000,
    seed: Seed = 0,
) -> Correlation:
    """Coefficient with two p values; NaN with fewer than three pairs or a constant side."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise InputError(
            f"correlation needs two vectors of one length, not {x.shape} and {y.shape}"
        )
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 3 or _constant(x) or _constant(y):
        return Correlation(math.nan, math.nan, math.nan, len(x))
    if method == "spearman":
        value, p = stats.spearmanr(x, y)
        x, y = stats.rankdata(x), stats.rankdata(y)
    elif method == "pearson":
        value, p = stats.pearsonr(x, y)
    else:
        raise InputError(f"'{method}' is not a correlation: spearman or pearson")
    return Correlation(float(value), float(p), _permutation_p(x, y, n_permutations, seed), len(x))


def _constant(x: Array) -> bool:
    """Up to rounding: what is left then has no order worth a correlation."""
    return bool(np.ptp(x) <= 1e-12 * np.abs(x).max())


def _permutation_p(x: Array, y: Array, n_permutations: int, seed: Seed) -> float:
    """Two-sided share of orders of y whose |correlation| reaches the observed one."""
    n = len(x)
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    seen = abs(x @ y) / n
    if n <= EXACT_UP_TO:
        orders = np.array(list(permutations(range(n))))
        reached = np.abs(y[orders] @ x) / n >= seen - 1e-12
        return float(reached.mean())
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(n), (n_permutations, 1)), axis=1)
    reached = np.abs(y[orders] @ x) / n >= seen - 1e-12
    return float((reached.sum() + 1) / (n_permutations + 1))


def holm(p: Sequence[float] | Array) -> Array:
    """Holm's step-down adjusted p values; NaN stays NaN and is not counted."""
    p = np.asarray(p, dtype=np.float64)
    adjusted = np.full_like(p, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    m = len(order)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * (m - np.arange(m))))
    return adjusted


def fdr(p: Sequence[float] | Array) -> Array:
    """Benjamini–Hochberg q values: declaring q ≤ α leaves a share ≤ α of false ones, on average.

    Holds for independent tests and for those that depend positively. NaN stays NaN and is not
    counted.

    >>> fdr([0.01, 0.04, 0.03]).round(2).tolist()
    [0.03, 0.04, 0.04]
    """
    p = np.asarray(p, dtype=np.float64)
    q = np.full_like(p, np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    m = len(order)
    scaled = p[order] * m / np.arange(1, m + 1)
    q[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return q


def sign_flip(
    values: Array, *, groups: Groups = None, n_flips: int = 10_000, seed: Seed = 0
) -> Array:
    """Two-sided p values of mean 0 for each column of `values` [item, …], NaN items left out.

    Under the null the sum of a group is as likely with either sign: signs of whole groups are
    flipped, the same for every column; all 2^groups of them where these are no more than `n_flips`.
    With fewer than two groups there is no p value. A group without any change weighs nothing: three
    changes in one direction have p = 2/8 among any number of clips.
    """
    values = np.asarray(values, dtype=np.float64)
    flat = np.nan_to_num(values.reshape(len(values), -1))
    n = n_groups(len(flat), groups)
    if n < 2:
        return np.full(values.shape[1:], np.nan)
    member = (
        np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    )
    sums = np.zeros((n, flat.shape[1]))
    np.add.at(sums, member, flat)
    sums = sums[np.abs(sums).sum(1) > 0]
    n = len(sums)
    seen = np.abs(sums.sum(0)) * (1 - 1e-9)  # equal sums count as equal in any order of summation
    if 2**n <= n_flips:
        signs = 1.0 - 2.0 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        p = (np.abs(signs @ sums) >= seen).mean(0)
    else:
        rng, reached = np.random.default_rng(seed), np.zeros(sums.shape[1])
        step = max(1, _CHUNK // n)
        for start in range(0, n_flips, step):
            signs = rng.choice([-1.0, 1.0], (min(step, n_flips - start), n))
            reached += (np.abs(signs @ sums) >= seen).sum(0)
        p = (reached + 1) / (n_flips + 1)
    p = np.where(np.abs(sums).sum(0) > 0, p, 1.0)
    return p.reshape(values.shape[1:])


def n_groups(n: int, groups: Groups) -> int:
    """How many independent units there are."""
    return n if groups is None else len(np.unique(np.asarray(groups)))


def _known(values: Array, groups: Groups) -> tuple[Array, Groups]:
    """Leave out items whose value is NaN, and their groups with them."""
    known = ~np.isnan(values)
    if known.all():
        return values, groups
    return values[known], None if groups is None else np.asarray(groups)[known]
