"""How alike heads are: in spectra, in the directions they use, in what they say about clips."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.cluster import hierarchy

from residual_audio.errors import InputError
from residual_audio.metrics.spectra import shares
from residual_audio.metrics.validate import Array, as_heads


def spectral_cosine(spectra: Array) -> Array:
    """Cosine between normalised eigenspectra: [head, d] → [head, head]; NaN where there is none."""
    p = shares(spectra)
    p = p / np.linalg.norm(p, axis=-1, keepdims=True)
    return np.clip(p @ p.T, -1.0, 1.0)


@dataclass(frozen=True)
class Clustering:
    """Ward clustering of heads."""

    order: Array
    """Heads in leaf order, neighbours as alike as the tree allows."""
    linkage: Array
    """SciPy linkage matrix over the heads in `members`."""
    members: Array
    """Heads that could be clustered; those without a spectrum come last in `order`."""

    def labels(self, n_clusters: int) -> Array:
        """Cluster 1 … n_clusters of each member."""
        return hierarchy.fcluster(self.linkage, n_clusters, criterion="maxclust")


def ward(vectors: Array) -> Clustering:
    """Ward clustering of rows [head, feature] (for spectra: their shares)."""
    vectors = np.asarray(vectors, dtype=np.float64)
    known = np.flatnonzero(np.isfinite(vectors).all(1))
    missing = np.setdiff1d(np.arange(len(vectors)), known)
    if len(known) < 2:
        return Clustering(np.arange(len(vectors)), np.empty((0, 4)), known)
    linkage = hierarchy.linkage(vectors[known], method="ward", optimal_ordering=True)
    order = known[hierarchy.leaves_list(linkage)]
    return Clustering(np.concatenate([order, missing]), linkage, known)


def within_and_cross(similarity: Array, group: Array) -> dict[str, float]:
    """Mean similarity of pairs inside a group and across groups, their ratio, and the counts."""
    similarity, group = np.asarray(similarity), np.asarray(group)
    if similarity.shape != (len(group), len(group)):
        raise InputError(f"similarity {similarity.shape} does not fit {len(group)} heads")
    upper = np.triu(np.ones(similarity.shape, dtype=bool), 1) & ~np.isnan(similarity)
    same = group[:, None] == group[None]
    within, cross = similarity[upper & same], similarity[upper & ~same]
    mean_within = float(within.mean()) if within.size else float("nan")
    mean_cross = float(cross.mean()) if cross.size else float("nan")
    return {
        "within": mean_within,
        "cross": mean_cross,
        "ratio": mean_within / mean_cross if mean_cross else float("nan"),
        "n_within": int(within.size),
        "n_cross": int(cross.size),
    }


def subspace_similarity(bases: Array) -> Array:
    """Mean squared cosine of the principal angles: [head, k, d] orthonormal rows → [head, head].

    1 for the same subspace, 0 for orthogonal ones, k/d expected for two drawn at random.
    """
    bases = np.asarray(bases, dtype=np.float64)
    n_heads, k, d = bases.shape
    flat = bases.reshape(n_heads * k, d)
    gram = (flat @ flat.T) ** 2
    return gram.reshape(n_heads, k, n_heads, k).sum(axis=(1, 3)) / k


def linear_cka(x: Array) -> Array:
    """Linear centred kernel alignment over the same clips: [head, clip, d] → [head, head].

    ‖XᵀY‖²_F / (‖XᵀX‖_F ‖YᵀY‖_F) on centred X, Y. Blind to rotation and scale inside a head.
    """
    x = as_heads(x)
    n_heads, n_clips, d = x.shape
    y = x.astype(np.float64)
    y -= y.mean(axis=1, keepdims=True)
    size = np.linalg.norm(y, axis=(1, 2), keepdims=True)
    y = np.divide(y, size, out=np.full_like(y, np.nan), where=size > 0)
    flat = np.ascontiguousarray(np.moveaxis(y, 0, 1)).reshape(n_clips, n_heads * d)
    known = np.repeat(size[:, 0, 0] > 0, d)
    cross = np.nan_to_num(flat).T @ np.nan_to_num(flat)
    hsic = (cross**2).reshape(n_heads, d, n_heads, d).sum(axis=(1, 3))
    scale = np.sqrt(np.diag(hsic))
    with np.errstate(invalid="ignore", divide="ignore"):
        out = hsic / (scale[:, None] * scale[None])
    out[~known[::d]] = np.nan
    out[:, ~known[::d]] = np.nan
    return out
