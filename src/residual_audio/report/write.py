"""An analysis on disk: `tables/` of a run, as CSV or Parquet, and as LaTeX and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from residual_audio.analysis.columns import PREFIXES
from residual_audio.analysis.result import Analysis
from residual_audio.files import read_json, write_json
from residual_audio.report.kept_analysis import with_what_was_there
from residual_audio.report.paper import (
    Printed,
    anova_rows,
    attention_rows,
    block_rows,
    fisher_rows,
    pair_rows,
    stage_rows,
)
from residual_audio.report.table_files import write_csv, write_parquet
from residual_audio.seals import prove_file, seal_files, unseal_file
from residual_audio.table import Table

PARQUET = {"spectra", "similarity"}
"""Tables too long to read: one row an eigenvalue, or a pair of heads."""


def write_analysis(analysis: Analysis, run: Path) -> list[Path]:
    """Write every table and `statistics.json` below `run/tables`; returns the files.

    What an earlier analysis of the same heads found besides stays (`kept_analysis`).
    """
    folder = run / "tables"
    analysis = with_what_was_there(analysis, run)
    written = []
    for name, table in analysis.tables.items():
        if name in PARQUET:
            written.append(write_parquet(folder / f"{name}.parquet", table))
        else:
            written.append(write_csv(folder / f"{name}.csv", table))
    for printed in printed_tables(analysis):
        written += printed.write(folder)
    notes = dict(analysis.statistics.get("notes", {}))
    notes |= {name: list(t.notes) for name, t in analysis.tables.items() if t.notes}
    record = {**analysis.statistics, "notes": notes, "skipped": dict(analysis.skipped)}
    written.append(write_json(folder / "statistics.json", record))
    return [*written, *seal_files(written)]


def printed_tables(analysis: Analysis) -> list[Printed]:
    """The tables a paper would print, as far as their numbers are there."""
    out = []
    stages = analysis.tables["stages"]
    for prefix in PREFIXES:
        if any(column.startswith(f"{prefix}pca_") for column in stages.columns):
            out.append(stage_rows(stages, prefix=prefix))
    out.append(block_rows(analysis.tables["blocks"]))
    out.append(anova_rows(analysis.statistics))
    if "pca_99" in analysis.statistics["metrics"]:
        out.append(pair_rows(analysis.statistics, "pca_99"))
    if "fisher" in analysis.tables:
        out.append(fisher_rows(analysis.tables["fisher"]))
    if "attention_stages" in analysis.tables:
        out.append(attention_rows(analysis.tables["attention_stages"]))
    return out


def write_tables(run: Path, tables: Sequence[Table]) -> list[Path]:
    """Tables of interventions below `run/tables`, with their captions and notes in one file."""
    folder = run / "tables"
    written = [write_csv(folder / f"{table.name}.csv", table) for table in tables]
    path = folder / "interventions.json"
    notes = {}
    if path.is_file():
        notes = read_json(prove_file(path))
        unseal_file(path)
    notes |= {t.name: {"caption": t.caption, "notes": list(t.notes)} for t in tables}
    written.append(write_json(path, notes))
    return [*written, *seal_files(written)]
