"""A few heads looked at for curvature: Isomap, and a bottleneck against as many components."""

from __future__ import annotations

import numpy as np

from residual_audio.analysis.source import Source, clip_groups, each_site
from residual_audio.errors import InputError
from residual_audio.metrics.curved import isomap, kept_by_bottleneck, kept_by_components
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows

BOTTLENECKS = (1, 2, 4, 8)
MOST_CLIPS = 400
FEWEST_CLIPS = 40


def curved_table(store: Source, *, seed: int = 0, progress: Progress = SILENT) -> Table:
    """One row a head and bottleneck, of the first head of every stage (block, of one stage).

    Half of the groups fit, the other half judge.
    """
    rng = np.random.default_rng(seed)
    n = len(store.clips)
    if n < FEWEST_CLIPS:
        raise InputError(f"{n} clips are too few to look for curvature: {FEWEST_CLIPS} are needed")
    clips = np.sort(rng.permutation(n)[:MOST_CLIPS])
    train = _half(np.asarray(clip_groups(store))[clips], rng)
    rows = []
    progress.step("analyse: curved", len(store.attention_sites), "sites")
    several = len({site.stage for site in store.attention_sites}) > 1
    for part in each_site(store):
        if several and part.site.block:
            progress.advance()
            continue
        x = part.x[0][clips].astype(np.float64)
        layout = isomap(x)
        ks = [k for k in BOTTLENECKS if k < x.shape[1]]
        flat = kept_by_components(x, train, ks)
        bent = kept_by_bottleneck(x, train, ks, seed=seed)
        for k, by_pca, by_autoencoder in zip(ks, flat, bent, strict=True):
            rows.append(
                {
                    "head_id": part.names[0],
                    "stage": part.site.stage,
                    "isomap": layout.dimension,
                    "isomap_residual": float(layout.residual[min(k, len(layout.residual)) - 1]),
                    "k": k,
                    "kept_pca": float(by_pca),
                    "kept_autoencoder": float(by_autoencoder),
                    "curvature": float(by_autoencoder - by_pca),
                }
            )
        progress.advance()
    notes = (
        f"{len(clips)} clips, half of the groups to fit, the others to judge; the first head of "
        "every stage; curvature: held-out variance that a bottleneck keeps beyond k components",
    )
    return from_rows("curved", rows, "Curved or flat? Isomap and autoencoder of a few heads", notes)


def _half(groups: Array, rng: np.random.Generator) -> Array:
    names = np.unique(groups)
    chosen = rng.permutation(names)[: (len(names) + 1) // 2]
    return np.flatnonzero(np.isin(groups, chosen))
