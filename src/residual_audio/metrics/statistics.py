"""Do stages differ, and by how much? Tests and effect sizes on one number per head, by stage.

NaN values are left out and the counts say so. Every result carries its n. With 184 heads of one
model the heads are the population, not a sample of models: the tests describe how cleanly stages
separate in this model, they do not generalise to other ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics.validate import Array

Groups = Mapping[str, Array]


@dataclass(frozen=True)
class Anova:
    """One-way analysis of variance."""

    f: float
    p: float
    df_between: int
    df_within: int
    eta_squared: float
    """Share of the variance that lies between groups."""
    n: int


@dataclass(frozen=True)
class Pair:
    """Two groups compared."""

    a: str
    b: str
    n_a: int
    n_b: int
    difference: float
    """mean(b) − mean(a)"""
    cohen_d: float
    """difference / pooled standard deviation"""
    tukey_p: float
    tukey_low: float
    tukey_high: float
    """95% interval of the difference, simultaneous over all pairs"""
    welch_t: float
    welch_p: float
    bonferroni_p: float
    """Welch p times the number of pairs, at most 1"""


@dataclass(frozen=True)
class Correlation:
    """How two numbers go together over heads."""

    spearman: float
    spearman_p: float
    pearson: float
    pearson_p: float
    n: int


def by_group(values: Sequence[float] | Array, groups: Sequence[str]) -> dict[str, Array]:
    """Finite values of each group, groups in order of first appearance."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) != len(groups):
        raise InputError(f"{len(values)} values were given for {len(groups)} groups")
    names = np.asarray(groups)
    out = {}
    for name in dict.fromkeys(groups):
        found = values[names == name]
        out[str(name)] = found[np.isfinite(found)]
    return out


def anova(groups: Groups) -> Anova:
    """F = between / within mean square; groups of fewer than two values are left out."""
    usable = [np.asarray(g, dtype=np.float64) for g in groups.values() if len(g) >= 2]
    n, k = sum(map(len, usable)), len(usable)
    if k < 2:
        return Anova(np.nan, np.nan, max(k - 1, 0), max(n - k, 0), np.nan, n)
    every = np.concatenate(usable)
    total = float(((every - every.mean()) ** 2).sum())
    within = float(sum(((g - g.mean()) ** 2).sum() for g in usable))
    if within <= 0:
        return Anova(np.nan, np.nan, k - 1, n - k, 1.0 if total > 0 else np.nan, n)
    f = (total - within) / (k - 1) / (within / (n - k))
    return Anova(float(f), float(stats.f.sf(f, k - 1, n - k)), k - 1, n - k, 1 - within / total, n)


def cohen_d(a: Array, b: Array) -> float:
    """(mean(b) − mean(a)) / s, s² = ((n_a − 1) s_a² + (n_b − 1) s_b²) / (n_a + n_b − 2)."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if len(a) < 2 or len(b) < 2:
        return float("nan")
    pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / (len(a) + len(b) - 2)
    return float((b.mean() - a.mean()) / np.sqrt(pooled)) if pooled > 0 else float("nan")


def compare_pairs(groups: Groups) -> list[Pair]:
    """Tukey HSD and Bonferroni-corrected Welch tests over all pairs of groups."""
    names = [name for name, values in groups.items() if len(values) >= 2]
    values = [np.asarray(groups[name], dtype=np.float64) for name in names]
    if len(names) < 2:
        return []
    spread = any(v.var() > 0 for v in values)
    tukey = stats.tukey_hsd(*values) if spread else None
    interval = tukey.confidence_interval(0.95) if tukey is not None else None
    out = []
    n_pairs = len(names) * (len(names) - 1) // 2
    for i, j in combinations(range(len(names)), 2):
        a, b = values[i], values[j]
        if a.var() + b.var() > 0:
            welch = stats.ttest_ind(b, a, equal_var=False)
            t, p = float(welch.statistic), float(welch.pvalue)
        else:
            t, p = float("nan"), float("nan")
        out.append(
            Pair(
                names[i],
                names[j],
                len(a),
                len(b),
                float(b.mean() - a.mean()),
                cohen_d(a, b),
                float(tukey.pvalue[i, j]) if tukey is not None else float("nan"),
                # scipy gives mean(i) − mean(j); ours is the other way round
                float(-interval.high[i, j]) if interval is not None else float("nan"),
                float(-interval.low[i, j]) if interval is not None else float("nan"),
                t,
                p,
                min(1.0, p * n_pairs),
            )
        )
    return out


def correlate(x: Sequence[float] | Array, y: Sequence[float] | Array) -> Correlation:
    """Spearman and Pearson correlation over the entries that both have."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.shape != b.shape:
        raise InputError(f"cannot correlate {a.shape} with {b.shape}")
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Correlation(np.nan, np.nan, np.nan, np.nan, len(a))
    rank, line = stats.spearmanr(a, b), stats.pearsonr(a, b)
    return Correlation(
        float(rank.statistic), float(rank.pvalue), float(line.statistic), float(line.pvalue), len(a)
    )
