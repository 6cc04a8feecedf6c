"""Several runs side by side: data sets, encoders, or trained against random weights.

Every estimate grows with the number of clips, so all runs are measured at the same n: that of the
smallest. Runs of one topology are compared stage by stage and paired over heads; others by quarters
of their depth, since stage 2 of one encoder is not stage 2 of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from scipy import stats

from residual_audio.analysis.aggregate import complete_head_table, groups_of, mean_and_std
from residual_audio.analysis.battery import measure
from residual_audio.analysis.source import Source, each_site
from residual_audio.errors import InputError
from residual_audio.metrics.separability import class_codes, fisher
from residual_audio.metrics.uncertainty import fdr
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows

METRICS = (
    "pca_90", "pca_99", "twonn", "mle", "pr", "eff_rank", "evr_pc1", "ln_ratio", "fisher_trace",
)  # fmt: skip
QUARTERS = 4
FEWEST = 30


@dataclass(frozen=True, repr=False)
class RunComparison:
    """Runs at one number of clips."""

    names: tuple[str, ...]
    n_clips: int
    place: Literal["stage", "block", "quarter"]
    """What heads are averaged over: quarters of the depth where the topologies differ."""
    heads: Mapping[str, Table]
    """Run → one row a head."""
    places: Table
    """Means by run and place: a stage, or a quarter of the depth."""
    blocks: Table
    variation: Table
    """By metric and place: mean over runs, coefficient of variation."""
    paired: Table
    """By pair of runs and metric, over heads; empty where the topologies differ."""

    @property
    def same_topology(self) -> bool:
        return self.place != "quarter"

    @property
    def tables(self) -> tuple[Table, ...]:
        return self.places, self.blocks, self.variation, self.paired

    def __repr__(self) -> str:
        return repr(self.places)

    def _repr_html_(self) -> str:
        return self.places._repr_html_()


def compare_stores(
    stores: Mapping[str, Source],
    *,
    n: int | None = None,
    ablations: Mapping[str, Table] | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> RunComparison:
    """Measure the heads of every store on the same number of clips, drawn by the seed."""
    if len(stores) < 2:
        raise InputError("a comparison needs two runs or more")
    smallest = min(len(store.clips) for store in stores.values())
    size = smallest if n is None else min(n, smallest)
    if size < FEWEST:
        raise InputError(f"{size} clips are too few for a dimension: {FEWEST} or more are needed")
    heads = {}
    for name, store in stores.items():
        progress.step(f"measure {name} at {size} clips", len(store.attention_sites), "sites")
        heads[name] = _measure(store, size, seed, progress)
    return compare_head_tables(heads, size, ablations)


def compare_head_tables(
    heads: Mapping[str, Table], n_clips: int, ablations: Mapping[str, Table] | None = None
) -> RunComparison:
    """The same from tables of one row a head, which must be of the same number of clips.

    `ablations` are tables of blocks taken out (`d_correct`), by run.
    """
    first, *others = (list(table["head_id"]) for table in heads.values())
    same = all(ids == first for ids in others)
    place: Literal["stage", "block", "quarter"] = "quarter"
    if same:
        place = groups_of(next(iter(heads.values())))[0]
    places = {name: _places(table, place) for name, table in heads.items()}
    note = (
        f"{n_clips} clips a run",
        f"by {place}" if same else "by quarters of the depth: topologies differ",
    )
    rows = [
        {"run": name, place: int(p), "n_heads": int((places[name] == p).sum())}
        | _means(table.where(places[name] == p))
        for name, table in heads.items()
        for p in np.unique(places[name])
    ]
    by_place = from_rows("runs_places", rows, "Means over heads by run and place", note)
    return RunComparison(
        tuple(heads),
        n_clips,
        place,
        heads,
        by_place,
        _blocks(heads, ablations or {}, note),
        _variation(by_place, place, note),
        _paired(heads if same else {}, note),
    )


def depth_of(heads: Table) -> Array:
    """Relative depth of each head's block: 0 for the first, 1 for the last."""
    index = heads["block_index"].astype(float)
    return index / max(float(index.max()), 1.0)


def _measure(store: Source, n: int, seed: int, progress: Progress) -> Table:
    rng = np.random.default_rng(seed)
    clips = np.sort(rng.choice(len(store.clips), n, replace=False))
    label = store.clips["label"][clips]
    known = all(value is not None for value in label)
    codes = class_codes(label)[1] if known and len(set(label)) > 1 else None
    parts: list[dict[str, Array]] = []
    for part in each_site(store):
        x = part.x[:, clips]
        columns = {k: v for k, v in measure(x, seed=seed).columns.items() if k in METRICS}
        if codes is not None:
            columns["fisher_trace"] = fisher(x, codes)
        parts.append({"head_id": np.array(part.names, dtype=object), **columns})
        progress.advance()
    if not parts:
        raise InputError("a store has no heads: extract with --capture heads")
    joined = {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}
    return complete_head_table(Table("heads", joined))


def _places(heads: Table, place: str) -> Array:
    if place != "quarter":
        return heads["stage" if place == "stage" else "block_index"].astype(int)
    return np.minimum((depth_of(heads) * QUARTERS).astype(int), QUARTERS - 1)


def _means(part: Table) -> dict[str, float]:
    out = {}
    for metric in METRICS:
        if metric in part:
            out[metric], out[f"{metric}_std"], _ = mean_and_std(part[metric])
    return out


def _blocks(
    heads: Mapping[str, Table], ablations: Mapping[str, Table], note: tuple[str, ...]
) -> Table:
    rows = []
    for name, table in heads.items():
        depth = depth_of(table)
        taken = ablations.get(name)
        lost = [] if taken is None else zip(taken["unit"], -taken["d_correct"], strict=True)
        drop = {str(unit): float(value) for unit, value in lost}
        for index in sorted(set(table["block_index"].tolist())):
            here = table["block_index"] == index
            part = table.where(here)
            place = {"run": name, "block_index": int(index), "depth": float(depth[here][0])}
            site = f"s{part['stage'][0]}.b{part['block'][0]}.attention"
            own = {"ablation_drop": drop.get(site, float("nan"))} if ablations else {}
            rows.append(place | _means(part) | own)
    return from_rows("runs_blocks", rows, "Means over heads by run and block", note)


def _variation(places: Table, place: str, note: tuple[str, ...]) -> Table:
    rows = []
    for metric in (m for m in METRICS if m in places):
        for p in np.unique(places[place]):
            values = places[metric][places[place] == p].astype(float)
            mean, std = float(values.mean()), float(values.std(ddof=1))
            row = {"metric": metric, place: int(p), "mean": mean, "std": std}
            rows.append(row | {"cv": std / mean if mean else float("nan"), "n_runs": len(values)})
    caption = "How far runs differ: coefficient of variation of their means"
    return from_rows("runs_variation", rows, caption, note)


def _paired(heads: Mapping[str, Table], note: tuple[str, ...]) -> Table:
    """Same heads in two runs: do they differ, and do they keep their order?"""
    rows: list[dict[str, str | float]] = []
    for a, b in combinations(heads, 2):
        for metric in (m for m in METRICS if m in heads[a] and m in heads[b]):
            x, y = (heads[name][metric].astype(float) for name in (a, b))
            known = np.isfinite(x) & np.isfinite(y)
            gap = (y - x)[known]
            if len(gap) < 3:
                continue
            moved = bool(np.ptp(gap) > 0)
            still = np.ptp(x[known]) == 0 or np.ptp(y[known]) == 0
            rows.append(
                {
                    "a": a,
                    "b": b,
                    "metric": metric,
                    "difference": float(gap.mean()),
                    "effect": float(gap.mean() / gap.std(ddof=1)) if moved else float("nan"),
                    "p": float(stats.wilcoxon(gap).pvalue) if moved else 1.0,
                    "rank_correlation": float("nan")
                    if still
                    else float(stats.spearmanr(x[known], y[known]).statistic),
                    "n_heads": len(gap),
                }
            )
    for row, q in zip(rows, fdr([float(row["p"]) for row in rows]), strict=True):
        row["q"] = float(q)
    caption = (
        "Same heads in two runs: b − a over heads, difference / standard deviation, Wilcoxon's p, "
        "false discovery rate q over the rows"
    )
    return from_rows("runs_paired", rows, caption, note)
