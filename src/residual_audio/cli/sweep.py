"""`residual-audio sweep`: search the settings of gains, nested and resumable."""

from __future__ import annotations

from typing import Annotated

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
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learning rate, epochs, components, stages, pull to 1 and path, by Optuna (extra `sweep`).

    Every outer fold has a study of its own on its training part; the test part is scored once. The
    studies are kept in RUN/sweeps (direct.db, or both.db with --network): the same command
    continues them.
    """
    from residual_audio.report.write import write_tables
    from residual_audio.surface.gain_studies import Studied, search_settings

    given = given_run(run, root, data_option)
    with watching(quiet or json) as progress:
        studied = Studied(given, fold, folds, seed, model, device)
        found = search_settings(studied, n_trials=trials, network=network, progress=progress)
    written = write_tables(run, list(found.tables))
    if json:
        print_json({"folds": found.folds, "n_trials": len(found.trials)})
        return
    if not quiet:
        show_table(found.tables[1], list(found.tables[1].columns))
    say(f"{len(written)} files in {run / 'tables'}")
