"""`residual-audio sweep`: search the settings of gains, nested and resumable."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.inputs import given_run
from residual_audio.cli.output import print_json, say, show_table
from residual_audio.cli.terminal import watching


def run(
    run: options.Run,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials an outer fold.")] = 30,
    fold: options.Folds = None,
    folds: options.NFolds = 5,
    network: Annotated[
        bool, typer.Option("--network", help="Search both paths; the second runs the encoder.")
    ] = False,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    engine: Annotated[
        Literal["local", "ray"], typer.Option("--engine", help="Where folds are searched.")
    ] = "local",
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Folds that are searched at a time.")
    ] = 1,
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Ray cluster; none: one on this machine.")
    ] = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learning rate, epochs, components, stages, pull to 1 and path, by Optuna (extra `sweep`).

    Every outer fold has a study of its own on its training part; the test part is scored once. The
    studies are kept in RUN/sweeps (direct-1.db …, or both-1.db … with --network): the same command
    continues them. With --processes or --engine ray folds are searched side by side; on a cluster
    RUN lies on a folder that all its machines see.
    """
    from residual_audio.engine import Where
    from residual_audio.report.write import write_tables
    from residual_audio.surface.gain_studies import Studied, search_settings

    given = given_run(run, root, data_option)
    with watching(quiet or json) as progress:
        studied = Studied(given, fold, folds, seed, model, device)
        where = Where(engine, processes, ray_address)
        found = search_settings(
            studied, n_trials=trials, network=network, where=where, progress=progress
        )
    written = write_tables(run, list(found.tables))
    if json:
        print_json({"folds": found.folds, "n_trials": len(found.trials)})
        return
    if not quiet:
        show_table(found.tables[1], list(found.tables[1].columns))
    say(f"{len(written)} files in {run / 'tables'}")
