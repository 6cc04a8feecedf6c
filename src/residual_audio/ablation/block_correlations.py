"""Do blocks whose heads look alike in a cheap metric matter alike? One point a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from residual_audio.metrics.uncertainty import Correlation, correlation, fdr
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Site

if TYPE_CHECKING:  # loads torch, which figures of a table go without
    from residual_audio.ablation.effects import Effects


def block_means(values: FloatArray, sites: Sequence[Site]) -> FloatArray:
    """Mean over the heads of each block; `values` has one number a head, block after block."""
    ends = np.cumsum([site.n_heads for site in sites])
    parts = np.split(np.asarray(values, np.float64), ends[:-1])
    return np.array([part.mean() for part in parts])


def over_blocks(metric: FloatArray, lost: FloatArray, seed: int = 0) -> Correlation:
    """Pearson's r of a metric with what is lost without each block, with p by t and by orders."""
    return correlation(metric, lost, "pearson", n_permutations=10_000, seed=seed)


def block_correlation_table(
    metrics: Mapping[str, FloatArray],
    sites: Sequence[Site],
    blocks: Sequence[Effects],
    seed: int = 0,
) -> Table:
    """Every metric of heads, averaged over a block, beside the importance of its attention."""
    means = {name: block_means(values, sites) for name, values in metrics.items()}
    rows: list[dict[str, str | float]] = []
    for effects in blocks:
        for measure in (m for m in ("correct", "margin") if m in effects.after):
            lost = effects.importance(measure)
            found = {name: over_blocks(values, lost, seed) for name, values in means.items()}
            q = fdr([one.p for one in found.values()])
            rows += [
                {
                    "importance": f"{effects.method} {measure}",
                    "metric": name,
                    "pearson": one.value,
                    "p": one.p,
                    "p_permutation": one.p_permutation,
                    "q": float(q[i]),
                    "n": one.n,
                }
                for i, (name, one) in enumerate(found.items())
            ]
    notes = (
        "one point a block: the mean of its heads against what is lost without its attention",
        "q: false discovery rate over the metrics beside one importance",
    )
    caption = "Which metric of heads goes with the importance of whole blocks?"
    return from_rows("ablation_block_correlations", rows, caption, notes)
