"""What mean pooling discards: variance by clip, time, frequency and rest; token patterns."""

from __future__ import annotations

import numpy as np

from residual_audio.analysis.source import Source, each_site
from residual_audio.engine.jobs import on_cores
from residual_audio.errors import InputError
from residual_audio.metrics.tensor import MODES, PARTS, higher_order_svd, variance_shares
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table


def pooling_table(store: Source, progress: Progress = SILENT) -> Table:
    """One row a head: shares of the variance, and ranks of the higher-order SVD."""
    columns: list[dict[str, Array]] = []
    n_sample = 0
    progress.step("analyse: pooling", len(store.attention_sites), "sites")
    for part in each_site(store):
        progress.advance()
        if not store.has(f"tokens/{part.site}/split"):
            continue
        split = np.moveaxis(np.asarray(store.array(f"tokens/{part.site}/split")), 1, 0)
        shares = variance_shares(part.x, split)
        found: dict[str, Array] = {"head_id": np.array(part.names, dtype=object)}
        found |= {f"share_{name}": shares[:, i] for i, name in enumerate(PARTS)}
        if store.has(f"tokens/{part.site}/sample"):
            sample = np.asarray(store.array(f"tokens/{part.site}/sample"))
            n_sample = len(sample)
            found |= _patterns(sample)
        columns.append(found)
    if not columns:
        raise InputError("tokens were not captured: extract with --capture …,tokens")
    joined = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
    notes = ["share_clip is what the mean over tokens keeps; time + frequency + rest is discarded"]
    if n_sample:
        notes.append(f"hosvd_ columns: {n_sample} sampled clips, at most {n_sample} clip patterns")
    return Table(
        "pooling",
        joined,
        "Variance of head outputs by clip mean, time, frequency and rest, and how many patterns "
        "each mode of the higher-order SVD needs.",
        tuple(notes),
    )


def _patterns(sample: Array) -> dict[str, Array]:
    """Participation ratio and 90% rank of each mode, of [sample, head, time, frequency, d]."""

    def one(h: int) -> dict[str, float]:
        try:
            found = higher_order_svd(sample[:, h])
        except InputError:  # a constant head
            return {}
        out = {f"hosvd_{mode}_pr": value for mode, value in found.participation().items()}
        out |= {f"hosvd_{mode}_90": float(rank) for mode, rank in found.rank(0.90).items()}
        return out | {"hosvd_core_kept": found.kept(0.90)}

    rows = on_cores(one, range(sample.shape[1]))
    names = [f"hosvd_{mode}_{what}" for mode in MODES for what in ("pr", "90")]
    names.append("hosvd_core_kept")
    return {name: np.array([row.get(name, np.nan) for row in rows]) for name in names}
