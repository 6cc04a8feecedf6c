"""Linear dimension: how many directions hold how much of the variance.

Conventions: covariances are centred and in float64 (ddof 1); a spectrum is a row of eigenvalues in
falling order, [..., d]; p_i = λ_i / Σ λ. A constant unit has no spectrum: its row is NaN and
so is every number made from it.
"""

from __future__ import annotations

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.moments import Moments
from residual_audio.metrics.validate import Array, as_heads, power_of_two_scale
from residual_audio.types import Spectrum


def eigenspectrum(x: Array) -> Array:
    """Eigenvalues of the covariance of each head: [head, clip, d] → [head, d], falling.

    A head whose clips differ by no more than the rounding of their own numbers gives NaN.
    """
    x = as_heads(x)
    n_heads, n, d = x.shape
    if n < 2:
        return np.full((n_heads, d), np.nan)
    out = np.empty((n_heads, d))
    for h in range(n_heads):  # one head in float64 at a time: memory stays that of the input
        out[h] = _one_spectrum(x[h])
    return out


def _one_spectrum(x: Array) -> Array:
    n, d = x.shape
    scale = power_of_two_scale(x)
    y = x.astype(np.float64) / scale
    mean = y.mean(axis=0)
    y -= mean
    y -= y.mean(axis=0)
    if n <= d:  # the Gram matrix has the same non-zero eigenvalues and is smaller
        values: Array = np.zeros(d)
        values[: n - 1] = np.linalg.eigvalsh(y @ y.T)[::-1][: n - 1]
    else:
        values = np.linalg.eigvalsh(y.T @ y)[::-1].copy()
    rounding = float(np.finfo(x.dtype).eps) * mean  # of each entry
    if values.sum() <= n * (rounding**2).sum():
        return np.full(d, np.nan)
    return np.clip(values, 0.0, None) / (n - 1) * scale**2


def spectrum_of_covariance(covariance: Array) -> Array:
    """Eigenvalues of covariances [..., d, d] → [..., d], falling; all-zero or NaN gives NaN."""
    covariance = np.asarray(covariance, dtype=np.float64)
    known = np.isfinite(covariance).all(axis=(-1, -2), keepdims=True)
    values = np.linalg.eigvalsh(np.where(known, covariance, 0.0))[..., ::-1]
    values = np.clip(values, 0.0, None)
    return np.where(values.sum(-1, keepdims=True) > 0, values, np.nan)


def isometry(w: Array) -> Array:
    """L with W Wᵀ = L Lᵀ for each head's rows W of W_O: [..., d, width] → [..., d, d].

    Distances and spectra of R W equal those of R L, so what comes after the projection costs what
    comes before it. By eigenvectors, not Cholesky: W may be short of full rank.
    """
    w = np.asarray(w, dtype=np.float64)
    values, vectors = np.linalg.eigh(w @ np.swapaxes(w, -1, -2))
    return vectors * np.sqrt(np.clip(values, 0.0, None))[..., None, :]


def fit_spectrum(x: Array) -> Spectrum:
    """Centred PCA of one unit [clip, d]: mean, basis (rows), eigenvalues."""
    x = np.asarray(x)
    if x.ndim != 2:
        raise InputError(f"expected [clip, d], got shape {x.shape}")
    return spectrum_of_moments(Moments.of(x))


def spectrum_of_moments(moments: Moments) -> Spectrum:
    """Centred PCA of one unit from its moments."""
    if moments.mean.ndim != 1:
        raise InputError(f"expected the moments of one unit, got a batch {moments.mean.shape}")
    if moments.n < 2:
        raise InputError(f"a spectrum needs at least 2 vectors, there are {moments.n}")
    values, vectors = np.linalg.eigh(moments.covariance)
    return Spectrum(
        mean=moments.mean,
        basis=np.ascontiguousarray(vectors.T[::-1]),
        eigenvalues=np.clip(values[::-1], 0.0, None),
        n=moments.n,
    )


def shares(spectrum: Array) -> Array:
    """p_i = λ_i / Σ λ (explained variance ratios)."""
    spectrum = np.asarray(spectrum, dtype=np.float64)
    with np.errstate(invalid="ignore"):  # a unit without variance: NaN
        return spectrum / spectrum.sum(-1, keepdims=True)


def pca_dimension(spectrum: Array, share: float) -> Array:
    """Smallest k with Σ_{i ≤ k} p_i ≥ share; a float, so that NaN can stand for 'no spectrum'."""
    if not 0 < share <= 1:
        raise InputError(f"share {share} is not in (0, 1]")
    p = shares(spectrum)
    # 1e-12: nine of ten equal eigenvalues are 0.9, whatever their rounding
    reached = np.cumsum(p, axis=-1) >= share - 1e-12
    return np.where(np.isnan(p).any(-1), np.nan, reached.argmax(-1) + 1.0)


def first_share(spectrum: Array) -> Array:
    """p_1"""
    return shares(spectrum)[..., 0]


def second_share(spectrum: Array) -> Array:
    """p_2; 0 where there is one direction only."""
    p = shares(spectrum)
    return p[..., 1] if p.shape[-1] > 1 else np.zeros(p.shape[:-1])


def kept_share(spectrum: Array, k: int) -> Array:
    """Share of the variance that the first k components keep."""
    return shares(spectrum)[..., :k].sum(-1)


def participation_ratio(spectrum: Array) -> Array:
    """(Σ λ)² / Σ λ²: from 1 (one direction) to d (all alike)."""
    p = shares(spectrum)
    return 1.0 / (p * p).sum(-1)


def spectral_entropy(spectrum: Array) -> Array:
    """−Σ p log p, in nats."""
    p = shares(spectrum)
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0 * p).sum(-1)


def effective_rank(spectrum: Array) -> Array:
    """exp of the spectral entropy: the size of a flat spectrum of the same entropy."""
    return np.exp(spectral_entropy(spectrum))
