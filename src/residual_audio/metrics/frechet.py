"""Distances between two clouds of embeddings: Fréchet (FAD), its limit FAD∞, and a kernel distance.

    FAD = |μ_x − μ_y|² + tr Σ_x + tr Σ_y − 2 tr (Σ_x Σ_y)^{1/2}

With Σ = F Fᵀ (eigendecomposition, clamped at 0), tr (Σ_x Σ_y)^{1/2} is the sum of the singular
values of F_xᵀ F_y: symmetric in the two sides and free of the complex roots of a general matrix.

A Gaussian fitted to n vectors is too narrow and its mean is off, so FAD is biased upwards by c/n
even for two samples of one law. FAD∞ fits that line over subsamples of both sides and reads it at
1/n = 0; it is straight only while n is above the dimension, hence `n < 2d` is worth a warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError

Array = npt.NDArray[Any]
Groups = Sequence[Any] | Array | None

# share of the files taken, and how often: halves oftener, as their spread is the standard error
FRACTIONS = ((0.5, 12), (0.6, 3), (0.7, 3), (0.8, 3), (0.9, 3), (1.0, 1))


@dataclass(frozen=True)
class Gaussian:
    """Mean [d], a factor [r, d] with Σ = factorᵀ factor, and the number of vectors behind them."""

    mean: Array
    factor: Array
    n: int

    @property
    def covariance(self) -> Array:
        return self.factor.T @ self.factor


@dataclass(frozen=True)
class Extrapolated:
    """FAD∞ with its standard error, and the points of the line it was read from."""

    value: float
    standard_error: float
    slope: float
    """Bias at the full sample: FAD ≈ value + slope."""
    fractions: Array
    distances: Array
    both_sides: bool
    """False where the reference was given as statistics only: its own bias then remains."""


@dataclass(frozen=True, slots=True)
class KernelDistance:
    """Unbiased squared MMD (it may be below 0), its jackknife standard error, the kernel width."""

    value: float
    standard_error: float
    bandwidth: float


def validate(x: Array, name: str = "embeddings", at_least: int = 2) -> Array:
    """As float64 [n, d] with n ≥ at_least and finite values, or an error."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] == 0:
        raise InputError(f"{name} must be [n, d], not {x.shape}")
    if len(x) < at_least:
        raise InputError(f"{name}: {len(x)} vectors are not enough, at least {at_least} are needed")
    if not np.isfinite(x).all():
        raise InputError(f"{name}: row {int(np.argwhere(~np.isfinite(x))[0][0])} is not finite")
    return x


def fit_gaussian(x: Array, name: str = "embeddings") -> Gaussian:
    """Mean and covariance (ddof 1) of the rows of x."""
    x = validate(x, name)
    mean = x.mean(0)
    rows = (x - mean) / math.sqrt(len(x) - 1)
    if len(rows) <= rows.shape[1]:
        return Gaussian(mean, rows, len(x))
    return Gaussian(mean, _factor(rows.T @ rows), len(x))


def gaussian_from_statistics(mean: Array, covariance: Array, n: int) -> Gaussian:
    """From a published mean and covariance."""
    mean, covariance = np.asarray(mean, np.float64), np.asarray(covariance, np.float64)
    if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)):
        raise InputError(f"mean {mean.shape} and covariance {covariance.shape} do not fit")
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise InputError("the statistics hold values that are not finite")
    largest = np.abs(covariance).max(initial=0.0)
    if np.abs(covariance - covariance.T).max(initial=0.0) > 1e-6 * largest:
        raise InputError("the covariance of the statistics is not symmetric")
    return Gaussian(mean, _factor((covariance + covariance.T) / 2), n)


def _factor(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0.0))).T


def frechet_distance(x: Gaussian, y: Gaussian) -> float:
    """Squared 2-Wasserstein distance of two Gaussians, never below 0."""
    if x.mean.shape != y.mean.shape:
        raise InputError(f"embeddings of {len(x.mean)} and {len(y.mean)} dimensions do not compare")
    shared = np.linalg.svd(x.factor @ y.factor.T, compute_uv=False).sum()
    spread = (x.factor**2).sum() + (y.factor**2).sum()
    return max(0.0, float(((x.mean - y.mean) ** 2).sum() + spread - 2 * shared))


def frechet_infinity(
    x: Array | Gaussian,
    y: Array,
    *,
    x_groups: Groups = None,
    y_groups: Groups = None,
    seed: int | np.random.Generator = 0,
) -> Extrapolated:
    """FAD∞: the intercept of FAD over 1/fraction, both sides subsampled by whole groups (files).

    The value may fall below 0: it is an unbiased estimate of something that may be 0. The standard
    error is the spread over halves drawn without replacement, which varies as the full sample does.
    """
    rng = np.random.default_rng(seed)
    y = validate(y, "evaluated embeddings", 4)
    y_units = _units(len(y), y_groups)
    fixed = x if isinstance(x, Gaussian) else None
    x_rows = np.empty((0, 0)) if isinstance(x, Gaussian) else validate(x, "reference embeddings", 4)
    x_units = _units(len(x_rows), x_groups)
    if len(y_units) < 4 or (fixed is None and len(x_units) < 4):
        raise InputError("FAD∞ needs at least four files on each side to draw halves from")
    inverse, distances = [], []
    for fraction, times in FRACTIONS:
        for _ in range(times):
            left = fixed or fit_gaussian(x_rows[_draw(x_units, fraction, rng)])
            right = fit_gaussian(y[_draw(y_units, fraction, rng)])
            inverse.append(1 / fraction)
            distances.append(frechet_distance(left, right))
    at, seen = np.array(inverse), np.array(distances)
    slope, value = np.polyfit(at, seen, 1)
    halves = seen[at == 1 / FRACTIONS[0][0]]
    return Extrapolated(
        float(value), float(halves.std(ddof=1)), float(slope), 1 / at, seen, fixed is None
    )


def _units(n: int, groups: Groups) -> list[Array]:
    """Row indices of each file."""
    if groups is None:
        return [np.array([i]) for i in range(n)]
    names = np.asarray(groups)
    if len(names) != n:
        raise InputError(f"{len(names)} groups were given for {n} vectors")
    order = np.argsort(names, kind="stable")
    starts = np.flatnonzero(names[order][1:] != names[order][:-1]) + 1
    return np.split(order, starts)


def _draw(units: list[Array], fraction: float, rng: np.random.Generator) -> Array:
    chosen = rng.permutation(len(units))[: max(2, round(fraction * len(units)))]
    return np.concatenate([units[i] for i in chosen])


def kernel_distance(
    x: Array,
    y: Array,
    *,
    bandwidth: float | None = None,
    x_groups: Groups = None,
    y_groups: Groups = None,
) -> KernelDistance:
    """Unbiased MMD² with k(a, b) = exp(−|a−b|² / 2h²); h defaults to the median distance within x.

    It needs no covariance, so it can be trusted at sample sizes where FAD cannot. Windows of one
    file are not independent: pairs within a file are left out, and files are left out one by one
    for the standard error.
    """
    x, y = validate(x, "reference embeddings"), validate(y, "evaluated embeddings")
    if x.shape[1] != y.shape[1]:
        raise InputError(f"embeddings of {x.shape[1]} and {y.shape[1]} dimensions do not compare")
    h = bandwidth if bandwidth is not None else _median_distance(x)
    if not h > 0:
        raise InputError("the reference embeddings are all the same: no kernel width can be taken")
    a, b = _membership(len(x), x_groups), _membership(len(y), y_groups)
    if min(a.shape[1], b.shape[1]) < 2:
        raise InputError("the kernel distance needs at least two files on each side")
    same_x, same_y = _between(x, x, a, a, h), _between(y, y, b, b, h)
    across = _between(x, y, a, b, h)
    n_x, n_y = a.sum(0), b.sum(0)  # vectors of each file
    mean_x, without_x = _mean_between_files(same_x, n_x)
    mean_y, without_y = _mean_between_files(same_y, n_y)
    cross, cross_x = _mean_across(across, n_x, n_y)
    _, cross_y = _mean_across(across.T, n_y, n_x)
    variance = _jackknife_variance(without_x + mean_y - 2 * cross_x)
    variance += _jackknife_variance(mean_x + without_y - 2 * cross_y)
    return KernelDistance(mean_x + mean_y - 2 * cross, math.sqrt(variance), float(h))


def _mean_between_files(sums: Array, n: Array) -> tuple[float, Array]:
    """Mean over pairs of vectors from different files, and the same with each file left out."""
    rows = sums.sum(1) - np.diagonal(sums)
    pairs = n.sum() ** 2 - (n**2).sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        without = (rows.sum() - 2 * rows) / (pairs - 2 * n * (n.sum() - n))
    return float(rows.sum() / pairs), without


def _mean_across(sums: Array, n: Array, m: Array) -> tuple[float, Array]:
    """Mean over pairs of one vector of each side, and the same with each file of rows left out."""
    rows = sums.sum(1)
    without = (rows.sum() - rows) / ((n.sum() - n) * m.sum())
    return float(rows.sum() / (n.sum() * m.sum())), without


def _jackknife_variance(values: Array) -> float:
    n = len(values)
    return float((n - 1) / n * ((values - values.mean()) ** 2).sum()) if n > 2 else math.nan


def _membership(n: int, groups: Groups) -> Array:
    """0/1 [vector, file]."""
    if groups is None:
        return np.eye(n)
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    if len(member) != n:
        raise InputError(f"{len(member)} groups were given for {n} vectors")
    return np.eye(len(names))[member]


def _between(x: Array, y: Array, a: Array, b: Array, h: float, step: int = 2048) -> Array:
    """Sums of the kernel over the vectors of each pair of files, in blocks of rows."""
    sums = np.zeros((a.shape[1], b.shape[1]))
    for start in range(0, len(x), step):
        rows = slice(start, start + step)
        sums += a[rows].T @ (np.exp(-_squared_distances(x[rows], y) / (2 * h * h)) @ b)
    return sums


def _median_distance(x: Array, at_most: int = 2000) -> float:
    x = x[np.linspace(0, len(x) - 1, min(len(x), at_most)).astype(int)]
    return float(np.sqrt(np.median(_squared_distances(x, x)[np.triu_indices(len(x), 1)])))


def _squared_distances(x: Array, y: Array) -> Array:
    d2 = (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T
    return np.maximum(d2, 0.0)


def file_distances(
    reference: Gaussian, y: Array, groups: Sequence[str] | Array
) -> dict[str, float]:
    """Fréchet distance of each file's own windows to the reference (one window: no covariance)."""
    y = validate(y, "evaluated embeddings", 1)
    names = np.asarray(groups)
    found = {}
    for rows in _units(len(y), names):
        part = y[rows]
        own = (
            fit_gaussian(part) if len(part) > 1 else Gaussian(part[0], np.zeros((1, y.shape[1])), 1)
        )
        found[str(names[rows[0]])] = frechet_distance(reference, own)
    return found


def outliers(values: Array, beyond: float = 3.5) -> Array:
    """True where the modified z-score, 0.6745 (x − median) / MAD, is above `beyond`."""
    values = np.asarray(values, dtype=np.float64)
    centre = np.median(values)
    spread = np.median(np.abs(values - centre))
    if not spread > 0:
        return np.zeros(len(values), dtype=bool)
    return 0.6745 * (values - centre) / spread > beyond
