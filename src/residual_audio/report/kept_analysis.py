"""What an earlier analysis of the same heads left, beside what a later one was asked for.

`analyse RUN --metrics curved` after `analyse RUN` measures the heads again and little else: its
tables of heads, blocks and stages have fewer columns, and written as they are they would take what
classes, projections and intervals had said. Whether both are of the same heads is seen from the
numbers themselves: every column that both have must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.analysis.aggregate import block_table
from residual_audio.analysis.head_statistics import head_statistics
from residual_audio.analysis.result import Analysis
from residual_audio.errors import ResidualAudioError
from residual_audio.report.run_tables import Tables
from residual_audio.table import Table


def with_what_was_there(analysis: Analysis, run: Path) -> Analysis:
    """The analysis with columns, spectra and statistics of an earlier one of the same heads."""
    try:
        before = Tables(run)
        if not same_heads(before["heads"], analysis.heads):
            return analysis
        heads = _with_columns(analysis.heads, before["heads"])
        stages = _with_columns(analysis.stages, before["stages"])
        spectra = _with_spaces(analysis.tables["spectra"], before["spectra"])
        known: Mapping[str, Any] = before.statistics
    except (ResidualAudioError, KeyError):  # nothing there, or not to be read: nothing to keep
        return analysis
    if "skipped" not in known:  # written last: an analysis that was killed before is none
        return analysis
    tables = {**analysis.tables, "heads": heads, "blocks": block_table(heads)}
    statistics = {**known, **analysis.statistics, **head_statistics(heads)}
    skipped = {part: why for part, why in statistics.pop("skipped").items() if part not in tables}
    return Analysis(
        {**tables, "stages": stages, "spectra": spectra},
        statistics,
        {**skipped, **analysis.skipped},
    )


def same_heads(before: Table, now: Table) -> bool:
    """Whether every column of numbers that both tables have holds the same numbers."""
    if before["head_id"].tolist() != now["head_id"].tolist():
        return False
    for name in now.columns:
        if name not in before or now[name].dtype.kind not in "if":
            continue
        if before[name].dtype.kind not in "if":
            return False
        if not np.allclose(before[name], now[name], rtol=1e-6, atol=1e-9, equal_nan=True):
            return False
    return True


def _with_columns(now: Table, before: Table) -> Table:
    """In the order of the earlier table, what is new at the end."""
    columns = {name: now[name] if name in now else before[name] for name in before.columns}
    columns |= {name: now[name] for name in now.columns if name not in columns}
    return Table(now.name, columns, now.caption, now.notes)


def _with_spaces(now: Table, before: Table) -> Table:
    """Rows of the earlier table whose space (raw, projected, token) the new one does not have."""
    other = ~np.isin(before["space"], np.unique(now["space"]))
    if not other.any():
        return now
    kept = before.where(other)
    columns = {name: np.concatenate([now[name], kept[name]]) for name in now.columns}
    return Table(now.name, columns, now.caption, now.notes)
