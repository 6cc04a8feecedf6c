"""What an analysis hands over: tables, statistics, and what was left out and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from residual_audio.analysis.aggregate import block_table, stage_table
from residual_audio.analysis.head_statistics import head_statistics
from residual_audio.errors import InputError
from residual_audio.table import Table


@dataclass(frozen=True, repr=False)
class Analysis:
    """Everything `analyse` found.

    >>> heads = Table("heads", {"head_id": ["s0.b0.h0"], "stage": [0], "block_index": [0]})
    >>> Analysis({"heads": heads}, {})
    Analysis of 1 heads
      heads: 1 rows
    """

    tables: Mapping[str, Table]
    """By file stem; always `heads`, `blocks` and `stages`."""
    statistics: Mapping[str, Any]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Part → why it could not be made."""

    @property
    def heads(self) -> Table:
        """One row a head: every estimate, with what classes say of it where clips have labels."""
        return self.tables["heads"]

    @property
    def blocks(self) -> Table:
        return self.tables["blocks"]

    @property
    def stages(self) -> Table:
        return self.tables["stages"]

    def __getitem__(self, name: str) -> Table:
        """A table by name."""
        try:
            return self.tables[name]
        except KeyError:
            known = ", ".join(self.tables)
            raise InputError(f"there is no table '{name}'; tables: {known}") from None

    def __repr__(self) -> str:
        lines = [f"  {name}: {len(table)} rows" for name, table in self.tables.items()]
        left = [f"  left out: {part}: {why}" for part, why in self.skipped.items()]
        return "\n".join([f"Analysis of {len(self.heads)} heads", *lines, *left])


def analyse_head_table(heads: Table) -> Analysis:
    """Every table and statistic that follows from a per-head table alone."""
    tables = {"heads": heads, "blocks": block_table(heads), "stages": stage_table(heads)}
    return Analysis(tables, head_statistics(heads))
