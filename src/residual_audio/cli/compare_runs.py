"""`residual-audio compare-runs`: data sets, encoders, or trained against random, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, say, show_table
from residual_audio.cli.terminal import watching


def run(
    runs: Annotated[list[Path], typer.Argument(help="Run folders with heads (see `extract`).")],
    n: Annotated[
        int | None,
        typer.Option("--n", min=30, help="Clips a run; at most the smallest has."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the comparison.")] = Path(
        "runs-compared"
    ),
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Dimension, L/N, EVR1 and Fisher ratio of RUNS by stage and block, at matched n.

    Encoders of one topology are paired over heads; others are compared by relative depth. Writes
    tables, a figure and a page.
    """
    from residual_audio.report.runs_page import write_comparison
    from residual_audio.surface.compared import compare_runs

    with watching(quiet or json) as progress:
        found = compare_runs(runs, n=n, seed=seed, progress=progress)
    written = write_comparison(found, out)
    if json:
        print_json(
            {
                "runs": list(found.names),
                "n_clips": found.n_clips,
                "same_topology": found.same_topology,
                **{table.name: list(table.rows()) for table in found.tables},
                "files": [str(path) for path in written],
            }
        )
        return
    if not quiet:
        shown = [
            "run",
            found.place,
            "n_heads",
            "pca_99",
            "twonn",
            "ln_ratio",
            "evr_pc1",
            "fisher_trace",
        ]
        show_table(found.places, [c for c in shown if c in found.places])
        if len(found.paired):
            show_table(
                found.paired, ["a", "b", "metric", "difference", "effect", "rank_correlation", "q"]
            )
    say(f"written: {out}")
