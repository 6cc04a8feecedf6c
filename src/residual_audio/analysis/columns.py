"""The columns of a per-head table: estimators, measured in several spaces."""

from __future__ import annotations

from residual_audio.errors import InputError
from residual_audio.metrics.estimators import BY_NAME, SUMMARY
from residual_audio.table import Table

PREFIXES = {
    "": "raw head outputs, before W_O",
    "projected_": "after W_O, by the d_head algebra",
    "token_": "over tokens instead of clip means",
}
"""Column prefixes and what they are measured on."""


def summary_columns(heads: Table) -> list[str]:
    """Columns that are averaged and tested, by space, then in the order of the estimators."""
    names = [prefix + estimator.name for prefix in PREFIXES for estimator in SUMMARY]
    return [name for name in names if name in heads and heads[name].dtype.kind in "fi"]


def label(name: str) -> str:
    """Readable name of a column."""
    for prefix in PREFIXES:
        if prefix and name.startswith(prefix):
            return f"{label(name[len(prefix) :])} ({prefix.rstrip('_')})"
    return BY_NAME[name].label if name in BY_NAME else name.replace("_", " ")


def join_columns(heads: Table, more: Table) -> Table:
    """A per-head table with the columns of another of the same heads; `reason` stays last."""
    if heads["head_id"].tolist() != more["head_id"].tolist():
        raise InputError(f"tables '{heads.name}' and '{more.name}' are not of the same heads")
    columns = dict(heads.columns) | {k: v for k, v in more.columns.items() if k not in heads}
    if "reason" in columns:
        columns["reason"] = columns.pop("reason")
    return Table(heads.name, columns, heads.caption, (*heads.notes, *more.notes))
