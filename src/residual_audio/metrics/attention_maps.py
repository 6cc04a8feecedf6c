"""Attention maps: how many kinds of them a head makes.

A map is a row-stochastic matrix [query, key] over the tokens of one window. The dimension of a
head's maps is that of the cloud of flattened maps, one point a window: at most the number of maps
less one, so it is only comparable at equal sample size. No component is cut off before it is
counted.
"""

from __future__ import annotations

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.estimators import of_spectrum
from residual_audio.metrics.validate import Array


def map_grams(maps: Array) -> Array:
    """Inner products between the flattened maps of each head: [sample, head, q, k] → [head, n, n].

    Taken about the mean map, so that rounding is small beside what differs. Every spectrum of a
    subset, or with means taken out, follows from them: maps are read once.
    """
    maps = np.asarray(maps)
    if maps.ndim != 4:
        raise InputError(f"expected maps [sample, head, query, key], got shape {maps.shape}")
    n, n_heads = maps.shape[:2]
    out = np.empty((n_heads, n, n))
    for h in range(n_heads):
        flat = maps[:, h].reshape(n, -1).astype(np.float64)
        mean = flat.mean(axis=0)
        flat -= mean
        out[h] = flat @ flat.T
        # what the storage format cannot tell apart is no difference
        rounding = n * ((float(np.finfo(maps.dtype).eps) * mean) ** 2).sum()
        if np.trace(out[h]) <= rounding:
            out[h] = np.nan
    return out


def gram_spectra(grams: Array, groups: Array | None = None) -> Array:
    """Spectra of the points behind Gram matrices [head, n, n] → [head, n], centred.

    groups [n]: centre each group by itself; groups of one are left out.
    """
    n = grams.shape[-1]
    groups = np.zeros(n, dtype=np.int64) if groups is None else np.asarray(groups)
    _, member, counts = np.unique(groups, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(counts[member] > 1)
    member = member[kept]
    if not len(kept):
        return np.full((len(grams), 1), np.nan)
    same = member[:, None] == member[None]
    centre = np.eye(len(kept)) - same / counts[member][None]
    free = len(kept) - len(np.unique(member))
    out = np.empty((len(grams), len(kept)))
    for h, gram in enumerate(grams):
        values = centre @ gram[np.ix_(kept, kept)] @ centre.T
        if np.isfinite(values).all():
            found = np.clip(np.linalg.eigvalsh((values + values.T) / 2)[::-1], 0.0, None)
            # beyond the degrees of freedom there is only rounding
            found[free:] = 0.0
            out[h] = found / free if found.sum() > 0 else np.nan
        else:
            out[h] = np.nan
    return out


def map_dimensions(maps: Array) -> dict[str, Array]:
    """Linear dimension of each head's maps, by name (pca_90 … eff_rank)."""
    return of_spectrum(gram_spectra(map_grams(maps)))


def dimensions_within_windows(grams: Array, windows: Array) -> dict[str, Array]:
    """Dimension of maps less the mean map of their window; windows seen once are left out.

    In shifted blocks the mask at the border makes windows differ for any sound: without this, the
    dimension of their maps is mostly that of the masks.
    """
    return of_spectrum(gram_spectra(grams, windows))


def dimension_against_sample(
    grams: Array, sizes: tuple[int, ...], rng: np.random.Generator
) -> dict[int, dict[str, Array]]:
    """Dimension of random subsets of the maps: what the sample size alone does."""
    order = rng.permutation(grams.shape[-1])
    return {
        n: of_spectrum(gram_spectra(grams[np.ix_(np.arange(len(grams)), order[:n], order[:n])]))
        for n in sizes
        if n <= grams.shape[-1]
    }
