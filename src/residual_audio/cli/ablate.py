"""`residual-audio ablate`: what happens to the answers when a part of the encoder is removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.inputs import given_run
from residual_audio.cli.output import print_json, say, show_table
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.table import Table


def run(
    run: options.Run,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            "--unit",
            "-u",
            help="head, attention, mlp, stage, a unit (s2.b5.h11) or a set (name=a+b); repeatable.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", help="direct (no encoder pass), first-order or exact; repeatable."
        ),
    ] = None,
    mode: Annotated[
        Literal["zero", "mean", "resample"],
        typer.Option("--mode", help="What takes the place of the unit."),
    ] = "zero",
    by: Annotated[
        Literal["labels", "captions"], typer.Option("--by", help="What a right answer is.")
    ] = "labels",
    fold: options.Folds = None,
    limit: options.Limit = None,
    curves: Annotated[
        bool, typer.Option("--curves/--no-curves", help="Accuracy against heads removed.")
    ] = True,
    pairs: Annotated[
        int, typer.Option("--pairs", min=0, help="Interactions of the N most important heads.")
    ] = 0,
    model: options.ModelOfStore = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Remove heads, blocks, MLPs, stages or named sets and measure, clip by clip.

    Writes tables/ablation_*.csv below RUN. Only `direct` works from the store alone; the others
    run the encoder again and need --root for data sets that are files.
    """
    from residual_audio.errors import InputError
    from residual_audio.report.write import write_tables
    from residual_audio.surface.inside import METHODS, AblationSettings, Way, ablation_study

    methods = method or ["direct"]
    for name in methods:
        if name not in METHODS:
            raise InputError(f"'{name}' is no method: use {', '.join(METHODS)}")
    settings = AblationSettings(
        levels=unit or ["head", "attention", "mlp", "stage"],
        methods=methods,  # type: ignore[arg-type]
        way=Way(mode=mode, batch_size=batch_size, seed=seed),
        curves=curves,
        pairs=pairs,
    )
    given = given_run(run, root, data_option)
    with watching(quiet or json) as progress:
        tables = ablation_study(
            given,
            settings,
            model=model,
            folds=fold,
            limit=limit,
            by=by,
            device=device,
            progress=progress,
        )
    written = write_tables(run, tables)
    if json:
        rows = given.rows(fold, limit)
        n = len(given) if rows is None else len(rows)
        print_json({"n_clips": n, "files": [p.name for p in written]})
        return
    if not quiet:
        _show(tables)
    say(f"{len(written)} files in {Path(run) / 'tables'}")


def _show(tables: list[Table]) -> None:
    """What matters most, what could be shown at all, then the tables."""
    effects = [t for t in tables if "d_margin" in t.columns and "unit" in t.columns and "n" in t]
    for table in effects:
        say(f"{table.caption}: {_most_missed(table)}")
    for table in effects:
        for note in table.notes:
            if note.startswith("the smallest change"):
                say(f"{table.caption}: {note}")
    for table in tables:
        if table.name.startswith("ablation_attention") and "d_margin_low" in table.columns:
            shown = ["unit", "d_correct", "d_correct_low", "d_correct_high", "d_margin", "q_margin"]
            show_table(table, [c for c in shown if c in table.columns])
        elif table.name == "ablation_correlations":
            _show_known(table, "margin", ["metric", "spearman", "p_permutation", "q"])
        elif table.name == "ablation_block_correlations":
            _show_known(table, "correct", ["metric", "pearson", "p", "q", "n"])


def _most_missed(table: Table, n: int = 3) -> str:
    """The units without which most of the margin is lost, as a sentence."""
    told = []
    for row in table.top("d_margin", n, lowest=True).rows():
        if row["d_margin"] < 0:
            low, high = row.get("d_margin_low"), row.get("d_margin_high")
            known = low is not None and low == low
            told.append(
                f"{row['unit']} {row['d_margin']:+.4f}"
                + (f" [{low:+.4f}, {high:+.4f}]" if known else "")
                + (f", q {row['q_margin']:.2g}" if "q_margin" in row else "")
            )
    return "most margin is lost without " + "; ".join(told) if told else "nothing is missed"


def _show_known(table: Table, measure: str, columns: list[str]) -> None:
    """Correlations with one measure; where none could be computed, a sentence says so."""
    asked = table.where([str(t).endswith(measure) for t in table["importance"]])
    values = asked[columns[1]]
    known = asked.where(values == values)
    if len(known):
        show_table(known, ["importance", *columns])
    elif len(asked):
        say(f"{table.caption} That cannot be told: removing any of them changes nothing here.")
