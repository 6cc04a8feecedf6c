"""From heads to blocks to stages: means and spreads, and the block table L, N, L/N, EVR1.

L is the mean linear dimension (PCA at 99%), N the mean nonlinear one (TwoNN), and L/N the ratio of
the two means. PCA counts the flat dimensions a curved sheet is bent through, so L/N above 1 is what
curvature looks like; below 1, the local estimate is larger than the linear one: noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from residual_audio.analysis.columns import PREFIXES, summary_columns
from residual_audio.errors import InputError
from residual_audio.metrics.estimators import BY_NAME, SUMMARY, of_columns
from residual_audio.table import Table, from_rows, read_csv
from residual_audio.types import Head

LINEAR, NONLINEAR = BY_NAME["ln_ratio"].reads


def read_head_table(path: Path) -> Table:
    """A per-head table: `head_id` (s2.b5.h11 or L2_B5_H11) and one column a metric."""
    table = read_csv(path, "heads")
    if "head_id" not in table:
        raise InputError(f"'{path}' has no column 'head_id'; it has: {', '.join(table.columns)}")
    if len(table) == 0:
        raise InputError(f"'{path}' has a header and no heads")
    if not summary_columns(table):
        known = ", ".join(estimator.name for estimator in SUMMARY)
        raise InputError(f"'{path}' holds none of the known metrics: {known}")
    return complete_head_table(table)


def complete_head_table(table: Table) -> Table:
    """Heads in order of computation, with stage, block, head, the block's index and L/N."""
    heads = [Head.parse(text) for text in table["head_id"].tolist()]
    if len(set(heads)) != len(heads):
        twice = next(str(h) for h in heads if heads.count(h) > 1)
        raise InputError(f"head {twice} is in the table twice")
    order = sorted(range(len(heads)), key=heads.__getitem__)
    heads = [heads[i] for i in order]
    blocks = sorted({(h.stage, h.block) for h in heads})
    columns = {
        "head_id": np.array([str(h) for h in heads], dtype=object),
        "stage": np.array([h.stage for h in heads]),
        "block": np.array([h.block for h in heads]),
        "head": np.array([h.head for h in heads]),
        "block_index": np.array([blocks.index((h.stage, h.block)) for h in heads]),
    }
    columns |= {k: v[order] for k, v in table.columns.items() if k not in columns}
    for prefix in PREFIXES:
        columns |= of_columns(columns, prefix)
    return Table(table.name, columns, table.caption, table.notes)


def groups_of(heads: Table) -> tuple[Literal["stage", "block"], list[str]]:
    """What heads are compared by, and the group of each: stages, or blocks where one is all."""
    stages, blocks = heads["stage"].tolist(), heads["block"].tolist()
    if len(set(stages)) > 1:
        return "stage", [f"s{stage}" for stage in stages]
    return "block", [f"b{block}" for block in blocks]


def mean_and_std(values: np.ndarray) -> tuple[float, float, int]:
    """Mean, standard deviation (ddof 1) and count of the values that are there."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return float("nan"), float("nan"), 0
    return float(known.mean()), float(known.std(ddof=1)) if len(known) > 1 else 0.0, len(known)


def ratio_of_means(heads: Table, prefix: str = "") -> float:
    """L/N of a set of heads: mean PCA-99 dimension over mean TwoNN dimension."""
    if prefix + LINEAR not in heads or prefix + NONLINEAR not in heads:
        return float("nan")
    linear = mean_and_std(heads[prefix + LINEAR])[0]
    nonlinear = mean_and_std(heads[prefix + NONLINEAR])[0]
    return linear / nonlinear if nonlinear else float("nan")


def block_table(heads: Table) -> Table:
    """One row a block: heads, L, N, L/N, EVR1, then mean and std of every metric."""
    rows = []
    for index in sorted(set(heads["block_index"].tolist())):
        part = heads.where(heads["block_index"] == index)
        row: dict[str, object] = {
            "block_index": int(index),
            "stage": int(part["stage"][0]),
            "block": int(part["block"][0]),
            "n_heads": len(part),
        }
        for name, source in (("L", LINEAR), ("N", NONLINEAR)):
            row[name] = mean_and_std(part[source])[0] if source in part else float("nan")
        row["L/N"] = ratio_of_means(part)
        row["EVR1"] = mean_and_std(part["evr_pc1"])[0] if "evr_pc1" in part else float("nan")
        rows.append(row | _means(part))
    return from_rows(
        "blocks",
        rows,
        "Dimension by block: L = mean PCA 99%, N = mean TwoNN, L/N their ratio, EVR1 = mean share "
        "of the first component.",
        heads.notes,
    )


def stage_table(heads: Table) -> Table:
    """One row a stage: heads, mean and std of every metric, L/N of the means."""
    rows = []
    for stage in sorted(set(heads["stage"].tolist())):
        part = heads.where(heads["stage"] == stage)
        row: dict[str, object] = {
            "stage": int(stage),
            "n_blocks": len(set(part["block"].tolist())),
            "n_heads": len(part),
            "L/N": ratio_of_means(part),
        }
        rows.append(row | _means(part))
    return from_rows(
        "stages",
        rows,
        "Dimension by stage: mean ± standard deviation over the heads of each stage.",
        heads.notes,
    )


def _means(part: Table) -> dict[str, object]:
    out: dict[str, object] = {}
    for name in summary_columns(part):
        mean, std, n = mean_and_std(part[name])
        out[f"{name}_mean"], out[f"{name}_std"] = mean, std
        if n != len(part):
            out[f"{name}_n"] = n
    return out
