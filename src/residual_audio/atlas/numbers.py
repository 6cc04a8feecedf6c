"""Every per-head number of a run, with its label, group, direction and interval, by one list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from residual_audio.analysis.columns import PREFIXES
from residual_audio.metrics.estimators import ESTIMATORS
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.table import Table
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class Number:
    """One number a head."""

    key: str
    label: str
    group: str
    values: FloatArray
    """[head], NaN for none."""
    low: FloatArray | None = None
    high: FloatArray | None = None
    better: Literal["higher", "lower", "neither"] = "neither"
    format: Literal["number", "share"] = "number"
    signed: bool = False
    """Has a middle (0, or `middle`) that colours should show."""
    middle: float = 0.0
    chance: float | None = None
    about: str = ""


@dataclass(frozen=True)
class _Column:
    """A column of a table that becomes a number of the page."""

    table: str
    column: str
    label: str
    group: str
    better: Literal["higher", "lower", "neither"] = "neither"
    format: Literal["number", "share"] = "number"
    signed: bool = False
    interval: bool = False
    about: str = ""


_REMOVED = (
    ("direct", "direct path only"),
    ("exact", "by running the encoder without it"),
    ("first_order", "first-order estimate"),
)
_CHANGES = (
    ("d_correct", "accuracy", "below zero: the right answers lean on it"),
    ("d_margin", "margin", "below zero: the right answers lean on it"),
    ("d_loss", "loss", "above zero: the right answers lean on it"),
    ("d_shift", "embedding", "1 − cosine with the embedding that has the head"),
)
_COLUMNS: tuple[_Column, ...] = (
    _Column("fisher", "fisher_trace", "Fisher ratio", "classes", "higher"),
    _Column("fisher", "projected_fisher_trace", "Fisher ratio after W_O", "classes", "higher"),
    _Column("fisher", "probe_accuracy", "Linear probe", "classes", "higher", "share",
            interval=True),
    _Column("fisher", "selectivity", "Selectivity for a class", "classes", "higher"),
    _Column("fisher", "silhouette", "Silhouette of classes", "classes", "higher", signed=True),
    *(
        _Column(f"ablation_head_{method}", column, f"Change of {what} without it ({how})",
                "removing it", format="share" if what == "accuracy" else "number",
                signed=what != "embedding", interval=True, about=about)
        for method, how in _REMOVED
        for column, what, about in _CHANGES
    ),
    _Column("ablation_metrics", "direct_norm", "Size of what it adds to the latent",
            "contribution"),
    _Column("ablation_metrics", "direct_spread", "Spread of what it adds over clips",
            "contribution"),
    _Column("ablation_metrics", "text_alignment", "Share of it that lies along class texts",
            "contribution", format="share"),
    _Column("attention", "entropy", "Attention entropy (nats)", "attention"),
    _Column("attention", "distance", "Attention distance (tokens)", "attention"),
    _Column("attention", "distance_rows", "Attention distance in frequency", "attention"),
    _Column("attention", "distance_cols", "Attention distance in time", "attention"),
    _Column("attention", "pr", "Participation ratio of attention maps", "attention"),
    _Column("pooling", "share_clip", "Variance kept by the mean", "pooling", format="share"),
    _Column("pooling", "share_time", "Variance over time", "pooling", format="share"),
    _Column("pooling", "share_frequency", "Variance over frequency", "pooling", format="share"),
    _Column("pooling", "share_rest", "Variance over both together", "pooling", format="share"),
)  # fmt: skip


def numbers_of(tables: Tables, head_ids: Sequence[str]) -> list[Number]:
    """All that the tables of a run say of each head, in the order of these heads."""
    found = [*_estimates(tables, head_ids)]
    for column in _COLUMNS:
        number = _of_column(tables, column, head_ids)
        if number is not None:
            found.append(number)
    found += _gains(tables, head_ids)
    return [n for n in found if np.isfinite(n.values).any()]


def aligned(table: Table, column: str, head_ids: Sequence[str], key: str = "head_id") -> FloatArray:
    """A column in the order of the heads; NaN where the table lacks one."""
    place = {name: i for i, name in enumerate(table[key].tolist())}
    values = table[column]
    if values.dtype.kind not in "fiub":
        return np.full(len(head_ids), np.nan)
    return np.array([values[place[h]] if h in place else np.nan for h in head_ids], np.float64)


def _table(tables: Tables, name: str) -> Table | None:
    try:
        return tables[name]
    except MissingTable:
        return None


def _estimates(tables: Tables, head_ids: Sequence[str]) -> Iterator[Number]:
    heads = _table(tables, "heads")
    # those of classes stand in a table of their own too, with intervals
    listed = {c.column for c in _COLUMNS if c.table == "fisher" and _table(tables, "fisher")}
    for prefix, where in PREFIXES.items() if heads is not None else ():
        for estimator in ESTIMATORS:
            name = prefix + estimator.name
            if heads is None or name not in heads or name in listed:
                continue
            values, low, high = aligned(heads, name, head_ids), None, None
            if f"{name}_se" in heads:
                spread = 1.96 * aligned(heads, f"{name}_se", head_ids)
                low, high = values - spread, values + spread
            yield Number(
                name,
                estimator.label,
                f"{estimator.quantity}, {where}",
                values,
                low,
                high,
                estimator.better,
                "share" if estimator.quantity == "share" else "number",
                about=f"{estimator.label}: {where}",
            )


def _of_column(tables: Tables, asked: _Column, head_ids: Sequence[str]) -> Number | None:
    table = _table(tables, asked.table)
    if table is None or asked.column not in table:
        return None
    key = "unit" if asked.table.startswith("ablation_") else "head_id"
    stem = asked.column.removesuffix("_accuracy")  # probe_low belongs to probe_accuracy
    ends: dict[str, FloatArray | None] = {"low": None, "high": None}
    if asked.interval and f"{stem}_low" in table:
        ends = {end: aligned(table, f"{stem}_{end}", head_ids, key) for end in ends}
    chance = None
    if "probe_chance" in table and asked.column == "probe_accuracy":
        chance = float(np.nanmean(table["probe_chance"]))
    return Number(
        f"{asked.table}.{asked.column}",
        asked.label,
        asked.group,
        aligned(table, asked.column, head_ids, key),
        ends["low"],
        ends["high"],
        asked.better,
        asked.format,
        asked.signed,
        chance=chance,
        about=asked.about or tables.note(asked.table),
    )


def _gains(tables: Tables, head_ids: Sequence[str]) -> Iterator[Number]:
    """The fitted gains: mean over folds, and from the lowest fold to the highest."""
    table = _table(tables, "gains_units")
    if table is None or "mean_gain" not in table:
        return
    for column, label, signed in (
        ("mean_gain", "Fitted gain (mean of its components)", True),
        ("moved", "How far the fitted gains moved it", False),
        ("gain_of_mean", "Fitted gain of its mean", True),
    ):
        if column not in table:
            continue
        by_fold = fold_values(table, column, head_ids)
        if not np.isfinite(by_fold).any():
            continue
        with np.errstate(all="ignore"):
            yield Number(
                f"gains.{column}",
                label,
                "gains",
                _over_folds(np.nanmean, by_fold),
                _over_folds(np.nanmin, by_fold),
                _over_folds(np.nanmax, by_fold),
                signed=signed,
                middle=1.0 if signed else 0.0,
                about="mean over folds; the interval is from the lowest fold to the highest",
            )


def _over_folds(reduce: Callable[..., FloatArray], values: FloatArray) -> FloatArray:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a head without gains has none
        return reduce(values, axis=0)


def fold_values(table: Table, column: str, head_ids: Sequence[str]) -> FloatArray:
    """[fold, head] of a table with a row a fold and unit."""
    folds = list(dict.fromkeys(map(str, table["fold"].tolist())))
    which = np.array([str(f) for f in table["fold"].tolist()])
    return np.stack(
        [aligned(table.where(which == fold), column, head_ids, "unit") for fold in folds]
    )


def as_piece(numbers: Sequence[Number]) -> list[Mapping[str, object]]:
    """As the page reads them, with seven digits."""

    def digits(values: FloatArray | None) -> list[float | None] | None:
        if values is None:
            return None
        return [float(f"{v:.7g}") if np.isfinite(v) else None for v in values]

    return [
        {
            "key": n.key,
            "label": n.label,
            "group": n.group,
            "values": digits(n.values),
            "low": digits(n.low),
            "high": digits(n.high),
            "better": n.better,
            "format": n.format,
            "signed": n.signed,
            "middle": n.middle,
            "chance": n.chance,
            "about": n.about,
        }
        for n in numbers
    ]
