"""Nonlinear spectra: kernel PCA and kernel dimension, the curved counterparts of the spectrum.

Where PCA needs many directions for a bent sheet, these need few. All take one cloud [clip, d];
their cost grows with the cube of the number of clips, so callers pass a declared sample. The
Gaussian kernel is exp(−|x − y|² / ε); the bandwidth ε is in units of squared distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.validate import Array, power_of_two_scale


def squared_distances(x: Array) -> Array:
    """[clip, clip], from differences of the centred cloud; exact zeros on the diagonal."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or len(x) < 3:
        raise InputError(f"expected at least 3 vectors [clip, d], got shape {x.shape}")
    x = x - x.mean(axis=0)
    norms = (x * x).sum(axis=1)
    out = np.clip(norms[:, None] + norms[None] - 2 * (x @ x.T), 0.0, None)
    np.fill_diagonal(out, 0.0)
    return out


def median_bandwidth(squared: Array) -> float:
    """Median squared distance between two clips: half of the pairs are near."""
    upper = squared[np.triu_indices(len(squared), 1)]
    return float(np.median(upper))


def kernel_pca_spectrum(x: Array, bandwidth: float | None = None) -> Array:
    """Eigenvalues of the doubly centred Gaussian kernel matrix / (n − 1): [clip], falling.

    NaN for a constant cloud. For a bandwidth much larger than the cloud this is PCA's spectrum.
    """
    squared = squared_distances(x)
    bandwidth = median_bandwidth(squared) if bandwidth is None else bandwidth
    if bandwidth <= 0:
        return np.full(len(squared), np.nan)
    kernel = np.exp(-squared / bandwidth)
    kernel -= kernel.mean(axis=0)
    kernel -= kernel.mean(axis=1, keepdims=True)
    values = np.linalg.eigvalsh((kernel + kernel.T) / 2)[::-1]
    return np.clip(values, 0.0, None) / (len(values) - 1)


@dataclass(frozen=True)
class KernelDimension:
    """Dimension read off how the kernel sum grows with the bandwidth."""

    dimension: float
    bandwidth: float
    """Where the growth is steepest: the scale at which the cloud looks most like a manifold."""


def kernel_dimension(x: Array, n_bandwidths: int = 48) -> KernelDimension:
    """max over ε of 2 d log S / d log ε, S(ε) = Σ_ij exp(−|x_i − x_j|²/ε) (Coifman et al. 2008)."""
    x = np.asarray(x, dtype=np.float64)
    scale = power_of_two_scale(x - x.mean(axis=0))
    squared = squared_distances(x / scale)
    upper = squared[np.triu_indices(len(squared), 1)]
    upper = upper[upper > 0]
    if not upper.size or len(squared) < 10:
        return KernelDimension(float("nan"), float("nan"))
    grid = np.geomspace(np.quantile(upper, 0.001), 4 * upper.max(), n_bandwidths)
    n, best, where = len(squared), 0.0, float("nan")
    for epsilon in grid:
        weights = np.exp(-upper / epsilon)
        # the derivative in closed form: 2 Σ w |x−y|²/ε / Σ w, the n diagonal terms being constant
        growth = 2 * 2 * (weights * upper).sum() / epsilon / (n + 2 * weights.sum())
        if growth > best:
            best, where = float(growth), float(epsilon)
    return KernelDimension(best, where * scale**2)
