"""`residual-audio sweep`: search the settings of gains, nested and resumable."""

from __future__ import annotations

from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.intervention_inputs import Folds, Run, show_table
from residual_audio.cli.output import print_json


def run(
    run: Run,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials an outer fold.")] = 30,
    fold: Folds = None,
    folds: Annotated[
        int, typer.Option("--folds", min=2, help="Grouped folds where there are no official ones.")
    ] = 5,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learning rate, epochs, components, stages and pull towards 1, by Optuna (extra `sweep`).

    Every outer fold has a study of its own on its training part; the test part is scored once. The
    studies are kept in RUN/sweeps/direct.db: the same command continues them.
    """
    from residual_audio.analysis.table import from_rows
    from residual_audio.evaluation.adapted_run import rows_of
    from residual_audio.evaluation.problem import folds_of, problem_of
    from residual_audio.evaluation.sweep import sweep
    from residual_audio.store import open_store

    store = open_store(run)
    problem = problem_of(store, rows_of(store, fold))
    found, outer = sweep(
        problem,
        folds_of(problem.clips, folds, seed),
        run / "sweeps" / "direct.db",
        n_trials=trials,
        seed=seed,
        progress=None if quiet or json else lambda what: typer.echo(f"… {what}", err=True),
    )
    tables = [
        from_rows("sweep_trials", found, "Trials, by held-out accuracy inside the training part"),
        from_rows("sweep_folds", outer, "Nested: chosen on the training part, scored on the test"),
    ]
    from residual_audio.report.write import write_tables

    written = write_tables(run, tables)
    if json:
        print_json({"folds": outer, "n_trials": len(found)})
        return
    if not quiet:
        show_table(tables[1], list(tables[1].columns))
    typer.echo(f"{len(written)} files in {run / 'tables'}")
