"""`residual-audio analyse`: what every head carries, from a store or from a per-head table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

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
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            help="all, dimension, projected, tokens, kernel, units, similarity, separability, "
            "attention, pooling, clips, words, curves, intervals; all,curved for the slow one too.",
        ),
    ] = "all",
    units: Annotated[
        str, typer.Option("--units", help="heads, blocks, stages; a,b,c.")
    ] = "heads,blocks,stages",
    labels: Annotated[
        bool,
        typer.Option("--labels/--no-labels", help="Use labels where clips have them."),
    ] = True,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw figures/.")] = True,
    space: Annotated[
        Literal["raw", "projected", "joint"],
        typer.Option(
            "--space", help="Heads before W_O, after it, or as they reach the joint embedding."
        ),
    ] = "raw",
    names: Annotated[
        Literal["own", "seeds"],
        typer.Option("--names", help="seeds: also under the file names of the first description."),
    ] = "own",
    out: options.Out = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Dimension, similarity, separability and statistics of every head: tables and figures.

    No model is loaded. Writes tables/ and figures/ below RUN (or --out); those of another --space
    below RUN/projected or RUN/joint, where every table and figure is of that space.
    """
    from residual_audio.report.write import write_analysis

    if (run is None) == (from_table is None):
        raise typer.BadParameter("give a run folder, or --from-table FILE.csv")
    if run is not None:
        folder = out or (run if space == "raw" else run / space)
        analysis = _of_store(run, metrics, units, labels, seed, quiet or json, space)
    else:
        assert from_table is not None
        folder = out or Path("runs") / from_table.stem
        analysis = _of_table(from_table)
    written = write_analysis(analysis, folder)
    if figures:
        from residual_audio.report.figures import draw_all

        with watching(quiet or json) as progress:
            progress.keeps("the tables are written; `report` draws the figures from them")
            drawn = draw_all(folder, progress=progress)
        written += drawn
        if names == "seeds":
            from residual_audio.report.seed_names import write_seed_names

            written += write_seed_names(folder, drawn, raw=space == "raw")
    _report(analysis, written, folder, json, quiet)


def _of_table(path: Path) -> Analysis:
    from residual_audio.surface.inside import analyse_table

    return analyse_table(path)


def _of_store(
    run: Path,
    metrics: str,
    units: str,
    labels: bool,
    seed: int,
    quiet: bool,
    space: Literal["raw", "projected", "joint"],
) -> Analysis:
    from residual_audio.surface.inside import analyse

    with watching(quiet) as progress:
        return analyse(
            run,
            metrics,
            space=space,
            units=units,
            labels=labels,
            seed=seed,
            progress=progress,
        )


def _report(analysis: Analysis, written: list[Path], folder: Path, json: bool, quiet: bool) -> None:
    from residual_audio.report.write import printed_tables

    if json:
        files = [str(path.relative_to(folder)) for path in written]
        print_json(
            {
                "out": str(folder),
                "files": files,
                "skipped": dict(analysis.skipped),
                **analysis.statistics,
            }
        )
        return
    if not quiet:
        for printed in printed_tables(analysis):
            print_table(printed.header, printed.rows, printed.caption)
    for part, reason in analysis.skipped.items():
        say(f"left out: {part}: {reason}", err=True)
    say(f"{len(written)} files below {folder}")
