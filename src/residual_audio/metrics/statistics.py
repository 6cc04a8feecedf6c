"""Do stages differ, and by how much? Tests and effect sizes on one number per head, by stage.

NaN values are left out and the counts say so. Every result carries its n. With 184 heads of one
model the heads are the population, not a sample of models: the tests describe how cleanly stages
separate in this model, they do not generalise to other ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from scipy import special, stats
from scipy.optimize import brentq

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
class Contrast:
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
class Association:
    """How two numbers go together over heads, by rank and along a line."""

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


def welch(a: Array, b: Array) -> tuple[float, float]:
    """t of mean(b) − mean(a) without assuming equal variances, and its two-sided p."""
    s_a, s_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    if not s_a + s_b > 0:
        return float("nan"), float("nan")
    t = (b.mean() - a.mean()) / np.sqrt(s_a + s_b)
    df = (s_a + s_b) ** 2 / (s_a**2 / (len(a) - 1) + s_b**2 / (len(b) - 1))
    return float(t), float(2 * stats.t.sf(abs(t), df))


def compare_pairs(groups: Groups) -> list[Contrast]:
    """Tukey–Kramer HSD and Bonferroni-corrected Welch tests over all pairs of groups."""
    names = [name for name, values in groups.items() if len(values) >= 2]
    values = [np.asarray(groups[name], dtype=np.float64) for name in names]
    k, df = len(names), sum(map(len, values)) - len(names)
    if k < 2:
        return []
    # mean square within groups: the spread that Tukey's test shares between all pairs
    square = sum(float(((v - v.mean()) ** 2).sum()) for v in values) / df
    critical = _range_critical(k, df) if square > 0 else float("nan")
    out = []
    for i, j in combinations(range(k), 2):
        a, b = values[i], values[j]
        difference = float(b.mean() - a.mean())
        step = float(np.sqrt(square / 2 * (1 / len(a) + 1 / len(b))))
        t, p = welch(a, b)
        out.append(
            Contrast(
                a=names[i],
                b=names[j],
                n_a=len(a),
                n_b=len(b),
                difference=difference,
                cohen_d=cohen_d(a, b),
                tukey_p=studentized_range_sf(abs(difference) / step, k, df) if step else np.nan,
                tukey_low=difference - critical * step,
                tukey_high=difference + critical * step,
                welch_t=t,
                welch_p=p,
                bonferroni_p=min(1.0, p * k * (k - 1) / 2),
            )
        )
    return out


def studentized_range_sf(q: float, k: int, df: int) -> float:
    """P(range of k standard normals / s > q), s² = χ²_df / df: Tukey's distribution.

    ∫ f(s) [1 − k ∫ φ(z) (Φ(z) − Φ(z − q s))^(k−1) dz] ds, by quadrature on fixed nodes: a hundred
    times faster than adaptive integration, and as exact as is printed.
    """
    z = np.linspace(-8.5, 8.5, 171)  # spacing 0.1: the trapezoid rule is exact to rounding here
    s, density = _scale_nodes(df)
    gap = special.ndtr(z) - special.ndtr(z - q * s[:, None])
    inside = k * (stats.norm.pdf(z) * gap ** (k - 1)).sum(axis=1) * 0.1
    return float(np.clip((density * (1 - inside)).sum(), 0.0, 1.0))


@cache  # tables compare hundreds of pairs over a handful of degrees of freedom
def _scale_nodes(df: int) -> tuple[Array, Array]:
    """Nodes of s = √(χ²_df / df) and its density there, times the weight of each."""
    low, high = np.sqrt(stats.chi2.ppf([1e-18, 1 - 1e-16], df) / df)
    nodes, weights = np.polynomial.legendre.leggauss(96)
    s = low + (high - low) * (nodes + 1) / 2
    density = np.exp(stats.chi2.logpdf(df * s**2, df)) * 2 * df * s * weights * (high - low) / 2
    return s, density


@cache
def _range_critical(k: int, df: int, level: float = 0.95) -> float:
    return float(brentq(lambda q: studentized_range_sf(q, k, df) - (1 - level), 1e-3, 500.0))


def correlate(x: Sequence[float] | Array, y: Sequence[float] | Array) -> Association:
    """Spearman and Pearson correlation over the entries that both have."""
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.shape != b.shape:
        raise InputError(f"cannot correlate {a.shape} with {b.shape}")
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Association(np.nan, np.nan, np.nan, np.nan, len(a))
    rank, line = stats.spearmanr(a, b), stats.pearsonr(a, b)
    return Association(
        float(rank.statistic), float(rank.pvalue), float(line.statistic), float(line.pvalue), len(a)
    )
