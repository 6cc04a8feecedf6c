"""`residual-audio analyse`: what every head carries, from a store or from a per-head table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table

if TYPE_CHECKING:
    from residual_audio.analysis.result import Analysis


def run(
    run: Annotated[
        Path | None, typer.Argument(help="Run folder with a store (see `extract`).")
    ] = None,
    from_table: Annotated[
        Path | None,
        typer.Option("--from-table", help="Start from a per-head CSV instead of a store."),
    ] = None,
    out: options.Out = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Dimension, similarity, separability and statistics of every head: tables and figures.

    No model is loaded. Writes tables/ below RUN (or --out).
    """
    from residual_audio.analysis.aggregate import read_head_table
    from residual_audio.analysis.result import analyse_head_table
    from residual_audio.report.write import write_analysis

    if (run is None) == (from_table is None):
        raise typer.BadParameter("give a run folder, or --from-table FILE.csv")
    assert from_table is not None
    analysis = analyse_head_table(read_head_table(from_table))
    folder = out or Path("runs") / from_table.stem
    written = write_analysis(analysis, folder)
    _report(analysis, written, folder, json, quiet)


def _report(analysis: Analysis, written: list[Path], folder: Path, json: bool, quiet: bool) -> None:
    from residual_audio.report.write import printed_tables

    if json:
        print_json({"out": str(folder), "files": [p.name for p in written], **analysis.statistics})
        return
    if not quiet:
        for printed in printed_tables(analysis):
            print_table(printed.header, printed.rows, printed.caption)
    for part, reason in analysis.skipped.items():
        typer.echo(f"left out: {part}: {reason}", err=True)
    typer.echo(f"{len(written)} files in {folder / 'tables'}")
