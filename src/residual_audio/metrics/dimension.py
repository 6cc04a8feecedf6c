"""Nonlinear (intrinsic) dimension from nearest-neighbour distances.

All estimators read the same `Distances` (one exact neighbour search) and return an `Estimate` per
head: value, standard error, clips used, and a reason where there is no value. They assume that the
density is constant within a neighbourhood; all are biased low for few clips in many dimensions, so
look at the estimate against the number of clips before comparing two of them.

Notation: r_j is the distance to the j-th neighbour, μ = r_2 / r_1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.neighbours import Distances
from residual_audio.metrics.validate import Array

MAX_DUPLICATES = 0.25
"""Share of duplicates beyond which a head has no estimate."""
MAX_TIED = 0.10
"""Share of clips with r_1 = r_2 (to the rounding of the input) beyond which there is none."""
MIN_CLIPS = 20


@dataclass(frozen=True)
class Estimate:
    """One number a head, with its standard error and a reason where it is NaN."""

    value: Array
    error: Array
    n: Array
    reason: tuple[str, ...]
    """Empty where there is a value."""


def refusals(distances: Distances, k: int) -> tuple[str, ...]:
    """Why each head cannot be estimated from k neighbours; empty where it can."""
    if k > distances.k:
        raise InputError(f"{k} neighbours are needed, the search was made for {distances.k}")
    return distances.once(f"refusals {k}", lambda: _refusals(distances, k))


def _refusals(distances: Distances, k: int) -> tuple[str, ...]:
    r = distances.values
    n_clips = r.shape[1]
    second = min(1, k - 1)
    with np.errstate(invalid="ignore"):
        tied = (r[..., second] - r[..., 0] <= 4 * distances.resolution).sum(axis=1)
    out = []
    for h in range(len(r)):
        n, duplicates = int(distances.n[h]), int(distances.duplicates[h])
        if n <= 1 and n_clips > 1:
            out.append("constant: all clips are the same vector")
        elif duplicates > MAX_DUPLICATES * n_clips:
            out.append(f"{duplicates} of {n_clips} clips are duplicates")
        elif n < max(MIN_CLIPS, k + 1):
            out.append(f"too few: {n} distinct clips, {max(MIN_CLIPS, k + 1)} are needed")
        elif k >= 2 and tied[h] > MAX_TIED * n:
            out.append(f"tied: {int(tied[h])} of {n} clips have two nearest at one distance")
        else:
            out.append("")
    return tuple(out)


def two_nn(
    distances: Distances, method: Literal["linear", "mle"] = "linear", discard: float = 0.1
) -> Estimate:
    """TwoNN (Facco et al. 2017): log μ is exponential with rate d.

    linear: slope through the origin of −log(1 − F(μ)) against log μ.
    mle: (m − 1) / (Σ_{i≤m} log μ_i + (n − m) log μ_m), unbiased, the largest n − m ratios censored.
    discard: share of the largest ratios left out (0.1 is what published tables were made with).
    The standard error is d/√(m − 2) for mle, a delete-group jackknife over clips for linear.
    """
    if method not in ("linear", "mle"):
        raise InputError(f"method '{method}' is not one of: linear, mle")
    if not 0 <= discard < 1:
        raise InputError(f"discard {discard} is not in [0, 1)")
    reasons = refusals(distances, 2)
    log_mu = _log_ratio(distances, 1, 2, reasons)
    value = _two_nn(np.sort(log_mu, axis=1), method, discard)
    if method == "mle":
        kept = (distances.n * (1 - discard)).astype(np.int64)
        error = value / np.sqrt(np.maximum(kept - 2, 1))
    else:
        error = _jackknife(log_mu, method, discard)
    return Estimate(value, error, distances.n, reasons)


def _jackknife(log_mu: Array, method: str, discard: float, n_groups: int = 20) -> Array:
    """Delete-group jackknife over clips. Sorted once: leaving clips out keeps the order."""
    order = np.argsort(log_mu, axis=1)
    ordered = np.take_along_axis(log_mu, order, axis=1)
    groups = (np.random.default_rng(0).permutation(log_mu.shape[1]) % n_groups)[order]
    partial = np.empty((n_groups, len(log_mu)))
    for g in range(n_groups):
        keep = groups != g
        size = int(keep[0].sum())  # the same in every head: groups are of clips
        partial[g] = _two_nn(ordered[keep].reshape(len(log_mu), size), method, discard)
    with np.errstate(invalid="ignore"):
        spread = ((partial - partial.mean(axis=0)) ** 2).sum(axis=0)
    return np.sqrt((n_groups - 1) / n_groups * spread)


def _log_ratio(distances: Distances, low: int, high: int, reasons: tuple[str, ...]) -> Array:
    """log(r_high / r_low): [head, clip], NaN for dropped clips and refused heads."""
    r = distances.values
    with np.errstate(divide="ignore", invalid="ignore"):
        log_mu = np.log(r[..., high - 1] / r[..., low - 1])
    refused = np.array([bool(reason) for reason in reasons])
    log_mu[refused] = np.nan
    return log_mu


def two_nn_of_ratios(log_mu: Array, method: str = "linear", discard: float = 0.1) -> Array:
    """TwoNN of given log μ [..., clip] (NaN = not there): what a bootstrap over clips needs."""
    flat = np.asarray(log_mu, dtype=np.float64).reshape(-1, np.shape(log_mu)[-1])
    return _two_nn(np.sort(flat, axis=1), method, discard).reshape(np.shape(log_mu)[:-1])


def _two_nn(x: Array, method: str, discard: float) -> Array:
    """TwoNN of rows of log μ in rising order, NaN last."""
    if x.shape[1] and not np.isnan(x[:, -1]).any():
        return _two_nn_of_whole_rows(x, method, discard)
    n = (~np.isnan(x)).sum(axis=1)
    value = np.full(len(x), np.nan)
    for size in np.unique(n[n > 0]):
        rows = n == size
        value[rows] = _two_nn_of_whole_rows(x[rows, :size], method, discard)
    return value


def _two_nn_of_whole_rows(x: Array, method: str, discard: float) -> Array:
    n = x.shape[1]
    kept = int(n * (1 - discard))
    if kept < 2:
        return np.full(len(x), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        if method == "mle":
            return (kept - 1) / (x[:, :kept].sum(axis=1) + (n - kept) * x[:, kept - 1])
        last = min(kept, n - 1)  # F = 1 has no finite ordinate
        y = -np.log1p(-np.arange(1, last + 1) / n)
        x = x[:, :last]
        return (x @ y) / np.einsum("ij,ij->i", x, x)


def local_dimension(distances: Distances, k: int | None = None) -> Array:
    """Levina–Bickel estimate at each clip: (k − 1) / Σ_{j<k} log(r_k / r_j): [head, clip].

    NaN for dropped clips, refused heads, and where all k distances are equal.
    """
    k = distances.k if k is None else k
    if k < 2:
        raise InputError(f"k = {k}: the local dimension needs at least 2 neighbours")
    return distances.once(f"local {k}", lambda: _local_dimension(distances, k)).copy()


def _local_dimension(distances: Distances, k: int) -> Array:
    refused = np.array([bool(reason) for reason in refusals(distances, k)])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_r = np.log(distances.values[..., :k])
        total = (k - 1) * log_r[..., -1] - log_r[..., :-1].sum(axis=-1)
        out = (k - 1) / total
    out[~np.isfinite(out)] = np.nan
    out[refused] = np.nan
    return out


def mle(
    distances: Distances,
    k: int | None = None,
    combine: Literal["harmonic", "arithmetic"] = "harmonic",
) -> Estimate:
    """Maximum likelihood (Levina & Bickel 2004) over k neighbours, combined over clips.

    harmonic: 1 / mean(1 / d_i), the likelihood of all clips together (MacKay & Ghahramani 2005);
    arithmetic: mean(d_i), as first published. The error treats clips as independent.
    """
    k = distances.k if k is None else k
    value, error, n = combine_local(local_dimension(distances, k), combine)
    return Estimate(value, error, n, refusals(distances, k))


def combine_local(local: Array, combine: str = "harmonic") -> tuple[Array, Array, Array]:
    """Value, standard error and count of clips from local dimensions [head, clip]."""
    if combine not in ("harmonic", "arithmetic"):
        raise InputError(f"combine '{combine}' is not one of: harmonic, arithmetic")
    n = (~np.isnan(local)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        if combine == "harmonic":
            value = 1 / _nan_mean(1 / local)
            error = value**2 * np.sqrt(_nan_variance(1 / local) / n)
        else:
            value = _nan_mean(local)
            error = np.sqrt(_nan_variance(local) / n)
    return value, error, n


def method_of_moments(distances: Distances, k: int | None = None) -> Estimate:
    """Method of moments (Amsaleg et al. 2018) over k neighbours, mean over clips.

    In d dimensions the mean distance m of points inside a ball of radius r_k is d/(d + 1) r_k, so
    that d = m / (r_k − m) at each clip. The error treats clips as independent.
    """
    k = distances.k if k is None else k
    if k < 2:
        raise InputError(f"k = {k}: the method of moments needs at least 2 neighbours")
    reasons = refusals(distances, k)
    r = distances.values[..., :k]
    mean = r.mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        local = mean / (r[..., -1] - mean)
    local[~np.isfinite(local)] = np.nan
    local[np.array([bool(reason) for reason in reasons])] = np.nan
    value, error, n = combine_local(local, "arithmetic")
    return Estimate(value, error, n, reasons)


def _nan_mean(x: Array) -> Array:
    known = ~np.isnan(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, x, 0.0).sum(axis=1) / known.sum(axis=1)


def _nan_variance(x: Array) -> Array:
    centred = x - _nan_mean(x)[:, None]
    known = ~np.isnan(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known, centred**2, 0.0).sum(axis=1) / (known.sum(axis=1) - 1)


def gride(distances: Distances, order: int = 1) -> Estimate:
    """GRIDE (Denti et al. 2022): dimension at the scale of neighbours `order` to 2·`order`.

    Maximises the likelihood of ρ = r_2n / r_n (n = order),

        log L = N log d + (n − 1) Σ log(ρ^d − 1) − ((2n − 1) d + 1) Σ log ρ + const,

    which is concave in d; order 1 is TwoNN by maximum likelihood. A larger order looks at a larger
    scale: noise lifts the small scales, curvature the large ones. Error: Fisher information.
    """
    if order < 1:
        raise InputError(f"order {order}: the first neighbour is number 1")
    reasons = refusals(distances, max(2 * order, 2))
    x = _log_ratio(distances, order, 2 * order, reasons)
    known = ~np.isnan(x)
    n = known.sum(axis=1).astype(np.float64)
    x = np.where(known, x, 0.0)
    total = x.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # E log ρ = (1/d) Σ_{j=n}^{2n−1} 1/j gives a starting point of the right size
        d = n * (1.0 / np.arange(order, 2 * order)).sum() / total
        for _ in range(100):
            slope, curvature = _gride_derivatives(d, x, known, n, total, order)
            # Newton on log d: steps cannot leave d > 0
            step = np.clip(-slope * d / (curvature * d**2 + slope * d), -1.0, 1.0)
            d = d * np.exp(step)
            if not np.any(np.abs(step) > 1e-13):
                break
        _, curvature = _gride_derivatives(d, x, known, n, total, order)
        error = 1 / np.sqrt(-curvature)
    bad = ~np.isfinite(d)
    return Estimate(
        np.where(bad, np.nan, d), np.where(bad, np.nan, error), n.astype(np.int64), reasons
    )


def _gride_derivatives(
    d: Array, x: Array, known: Array, n: Array, total: Array, order: int
) -> tuple[Array, Array]:
    """First and second derivative of log L in d; x = log ρ."""
    if order == 1:  # the other terms are nought
        return n / d - total, -n / d**2
    dx = d[:, None] * x
    small = dx < 1e-8  # x e^{dx}/(e^{dx} − 1) → 1/d as x → 0
    gone = np.expm1(-np.where(small, 1.0, dx))  # e^{−dx} − 1
    first = np.where(small, 1 / d[:, None], np.where(known, x / -gone, 0.0))
    # (x / 2 sinh(dx/2))² = x² e^{−dx} / (1 − e^{−dx})²
    second = np.where(small, 1 / d[:, None] ** 2, (x / gone) ** 2 * (1 + gone))
    first, second = np.where(known, first, 0.0).sum(1), np.where(known, second, 0.0).sum(1)
    slope = n / d + (order - 1) * first - (2 * order - 1) * total
    curvature = -n / d**2 - (order - 1) * second
    return slope, curvature
