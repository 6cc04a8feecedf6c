"""`residual-audio reweight protocol`: published protocols, as published and corrected."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.inputs import given_run
from residual_audio.cli.output import print_json, show_table
from residual_audio.cli.terminal import watching


def protocol(
    name: Annotated[
        Literal["paolini", "arcioni"],
        typer.Argument(help="Whose: one λ a stage (paolini), or one a head (arcioni)."),
    ],
    run: options.Run,
    fold: options.Folds = None,
    folds: options.NFolds = 5,
    n: Annotated[
        int | None,
        typer.Option("--n", min=4, help="Draw so many clips, class by class (as published)."),
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Also the published grid of rates and epochs.")
    ] = False,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """A published protocol on RUN, as published and corrected, with what differs.

    Runs the encoder; finished cells are kept in RUN/protocols, so a stopped command goes on.
    RUN/tables/protocol_NAME.csv has the columns, protocol_NAME_folds.csv every fold; the box plot
    is RUN/figures/protocol_NAME.
    """
    from residual_audio.report.figures import draw_all
    from residual_audio.report.write import write_tables
    from residual_audio.results import write_result
    from residual_audio.surface.protocols import protocol as run_protocol

    with watching(quiet or json) as progress:
        found = run_protocol(
            name,
            given_run(run, root, data_option),
            model=model,
            folds=fold,
            n=n,
            n_folds=folds,
            sweep=sweep,
            progress=progress,
        )
    written = write_tables(run, [found.table, found.folds])
    written.append(write_result(found.result, run / "results"))
    written += draw_all(run, {f"protocol_{name}"})
    if json:
        print_json(found.result.details["table"])
        return
    if not quiet:
        columns = ["variant", "column", "parameters", "accuracy", "fold_std", "low", "high"]
        columns += ["gain", "gain_low", "gain_high", "n", "chance", "capped", "chosen"]
        show_table(found.table, columns)
        for line in found.table.notes:
            typer.echo(f"- {line}")
    typer.echo(f"{len(written)} files below {run}")
    if note := (found.result.details["heard_before"] or {}).get("note"):
        typer.echo(f"note: {note}", err=True)
