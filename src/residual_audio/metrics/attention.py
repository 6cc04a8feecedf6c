"""Attention maps: how spread they are, how far they look, and how many kinds of them a head makes.

A map is a row-stochastic matrix [query, key] over the tokens of one window. The dimension of a
head's maps is that of the cloud of flattened maps, one point a window: at most the number of maps
less one, so it is only comparable at equal sample size. No component is cut off before it is
counted.
"""

from __future__ import annotations

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.spectra import eigenspectrum, linear_metrics
from residual_audio.metrics.validate import Array


def validate(maps: Array) -> Array:
    """[..., query, key], square, rows that are probabilities."""
    maps = np.asarray(maps)
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2]:
        raise InputError(f"expected attention maps [..., query, key], got shape {maps.shape}")
    sums = maps.sum(axis=-1, dtype=np.float64)
    if not np.allclose(sums, 1.0, atol=1e-2):
        worst = float(np.abs(sums - 1).max())
        raise InputError(f"rows of an attention map must sum to 1; one is off by {worst:.3g}")
    return maps


def attention_entropy(maps: Array) -> Array:
    """−Σ_key p log p in nats, mean over queries: [..., query, key] → [...]; 0 to log(n_keys)."""
    p = np.asarray(maps, dtype=np.float64)
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0)), 0.0).sum(-1).mean(-1)


def attention_distance(maps: Array, rows: int, columns: int) -> Array:
    """Mean distance, in token steps, from a query to where it looks: [..., query, key] → [...]."""
    maps = np.asarray(maps, dtype=np.float64)
    if maps.shape[-1] != rows * columns:
        raise InputError(f"a window of {rows} × {columns} has no {maps.shape[-1]} tokens")
    return (maps * token_distances(rows, columns)).sum(-1).mean(-1)


def token_distances(rows: int, columns: int) -> Array:
    """Euclidean distances between the tokens of a window, row by row: [token, token]."""
    place = np.stack(np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij"), -1)
    place = place.reshape(-1, 2).astype(np.float64)
    return np.linalg.norm(place[:, None] - place[None], axis=-1)


def map_spectra(maps: Array) -> Array:
    """Spectra of flattened maps: [sample, head, query, key] → [head, min(sample, query·key)]."""
    maps = np.asarray(maps)
    if maps.ndim != 4:
        raise InputError(f"expected maps [sample, head, query, key], got shape {maps.shape}")
    n, n_heads = maps.shape[:2]
    size = min(n, maps.shape[2] * maps.shape[3])
    out = np.empty((n_heads, size))
    for h in range(n_heads):
        flat = maps[:, h].reshape(n, -1)
        # float16 storage: judge constancy by its own rounding, compute in float64
        out[h] = eigenspectrum(flat)[0, :size]
    return out


def map_dimensions(maps: Array) -> dict[str, Array]:
    """Linear dimension of each head's maps, by name (pca_90 … eff_rank)."""
    return linear_metrics(map_spectra(maps))


def dimension_against_sample(
    maps: Array, sizes: tuple[int, ...], rng: np.random.Generator
) -> dict[int, dict[str, Array]]:
    """`map_dimensions` of random subsets of the given sizes: what the sample size alone does."""
    order = rng.permutation(len(maps))
    return {n: map_dimensions(maps[np.sort(order[:n])]) for n in sizes if n <= len(maps)}
