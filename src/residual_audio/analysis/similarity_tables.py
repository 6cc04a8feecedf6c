"""Which heads are alike: by spectrum, by the directions they write, by what they say of clips."""

from __future__ import annotations

from typing import Any

import numpy as np

from residual_audio.analysis.head_measures import HeadMeasures
from residual_audio.analysis.source import Source, each_site
from residual_audio.metrics.similarity import (
    linear_cka,
    spectral_cosine,
    subspace_similarity,
    ward,
    within_and_cross,
)
from residual_audio.metrics.spectra import isometry, shares
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table

N_DIRECTIONS = 5
MAX_CKA_CLIPS = 4000

Likeness = dict[str, float | dict[str, float]]
"""Means within and across stages with the counts of pairs, and `by_stage`: `s0~s1` → mean."""


def projected_bases(x: Array, w_out: Array, k: int = N_DIRECTIONS) -> Array:
    """The k leading directions each head writes into the stream: [head, k ≤ d_head, width].

    With R L having the covariance of R W up to rotation, L = U S^½ and W = L Vᵀ, the directions in
    the stream are those of the d × d problem carried over by Vᵀ = L⁻¹ W.
    """
    roots = isometry(w_out)
    k = min(k, x.shape[-1])
    out = np.empty((len(x), k, w_out.shape[-1]))
    for h, (cloud, root, w) in enumerate(zip(x, roots, w_out, strict=True)):
        z = cloud.astype(np.float64) @ root
        _, vectors = np.linalg.eigh(np.cov(z.T))
        lead = vectors.T[::-1][:k]
        out[h] = lead @ (np.linalg.pinv(root) @ w)
        out[h] = np.linalg.qr(out[h].T)[0].T  # rounding, and heads of rank below k
    return out


def head_similarity(
    store: Source, measures: HeadMeasures, progress: Progress = SILENT
) -> tuple[Table, dict[str, Likeness]]:
    """All pairs of heads, and what the pairs say about stages."""
    ids = measures.table["head_id"]
    stage = measures.table["stage"]
    n = len(ids)
    progress.step("analyse: similarity", len(np.unique(stage)), "stages")
    matrices = {"spectral_cosine": spectral_cosine(np.nan_to_num(measures.spectra["raw"]))}
    parts = list(each_site(store))
    if len({part.x.shape[2] for part in parts}) == 1:
        clips = slice(None, MAX_CKA_CLIPS)
        heads = np.concatenate([part.x[:, clips] for part in parts])
        matrices["cka"] = linear_cka(heads)
    # directions can be compared where the stream is the same: inside a stage
    subspace = np.full((n, n), np.nan)
    for s in np.unique(stage):
        members = np.flatnonzero(stage == s)
        bases = np.concatenate(
            [projected_bases(p.x, p.w_out) for p in parts if p.site.stage == int(s)]
        )
        subspace[np.ix_(members, members)] = subspace_similarity(bases)
        progress.advance()
    matrices["subspace"] = subspace
    a, b = np.triu_indices(n, 1)
    columns = {"head_a": ids[a], "head_b": ids[b]} | {k: m[a, b] for k, m in matrices.items()}
    note = (
        f"subspace: mean squared cosine of the principal angles of {N_DIRECTIONS} leading "
        "directions after W_O, inside a stage"
    )
    table = Table("similarity", columns, "Similarity of every pair of heads.", (note,))
    return table, {
        name: {**within_and_cross(matrix, stage), "by_stage": _by_stage(matrix, stage)}
        for name, matrix in matrices.items()
    }


def _by_stage(matrix: Array, stage: Array) -> dict[str, float]:
    """Mean of every pair of stages, as `s0~s1`."""
    out = {}
    names = np.unique(stage)
    upper = np.triu(np.ones(matrix.shape, dtype=bool), 1)
    for i, a in enumerate(names):
        for b in names[i:]:
            pair = (stage[:, None] == a) & (stage[None] == b)
            values = matrix[pair & (upper if a == b else True)]
            if np.isfinite(values).any():
                out[f"s{a}~s{b}"] = float(np.nanmean(values))
    return out


def fingerprint_table(measures: HeadMeasures, seed: int = 0, umap: bool = True) -> Table:
    """Ward order, clusters and a two-dimensional map of the heads' spectra."""
    p = shares(np.nan_to_num(measures.spectra["raw"]))
    clustering = ward(p)
    place = np.empty(len(p), dtype=np.int64)
    place[clustering.order] = np.arange(len(p))
    columns: dict[str, Any] = {
        "head_id": measures.table["head_id"],
        "stage": measures.table["stage"],
        "ward_order": place,
    }
    if len(clustering.members) >= 4:
        cluster = np.zeros(len(p), dtype=np.int64)
        cluster[clustering.members] = clustering.labels(4)
        columns["cluster"] = cluster
    layout, how = _layout(np.nan_to_num(p), seed, umap)
    columns["map_x"], columns["map_y"] = layout[:, 0], layout[:, 1]
    return Table("fingerprints", columns, "Heads by the shape of their spectrum.", (how,))


def _layout(p: Array, seed: int, umap: bool) -> tuple[Array, str]:
    """UMAP if asked, where it is installed and there are enough heads; else two components."""
    centred = p - p.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    plane = centred @ axes[:2].T if len(axes) > 1 else np.c_[centred @ axes[:1].T, np.zeros(len(p))]
    if not umap:
        return plane, "principal components of eigenspectra"
    if len(p) < 16:
        return plane, "principal components of eigenspectra (too few heads for UMAP)"
    try:
        from umap import UMAP
    except ImportError:
        return plane, "principal components of eigenspectra (UMAP needs residual-audio[viz])"
    model = UMAP(n_neighbors=min(15, len(p) - 1), min_dist=0.1, random_state=seed, n_jobs=1)
    return np.asarray(model.fit_transform(p), dtype=np.float64), "UMAP of eigenspectra"
