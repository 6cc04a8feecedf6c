"""`residual-audio run`: the main job, from a model and a data set to a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.surface.whole_run import Finished, RunSettings


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder.")],
    model: options.Model = "nano",
    dataset: options.Dataset = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    long: options.Long = "first",
    hop: options.Hop = None,
    pool: options.Pool = "all",
    seed: options.Seed = 0,
    folds: options.NFolds = 5,
    exact: Annotated[
        int, typer.Option("--exact", min=0, help="Clips on which blocks are ablated exactly.")
    ] = 64,
    previews: Annotated[
        int, typer.Option("--previews", min=0, help="Clips that the atlas can play, at most.")
    ] = 240,
    every_method: Annotated[
        bool,
        typer.Option("--every-method", help="Compare all adaptations, not the main ones (slow)."),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Extract → analyse → ablate → reweight → evaluate → report → atlas; every step resumes.

    Steps that are up to date are skipped. Exit code 3: done, but some clips were skipped.
    """
    from residual_audio.surface.whole_run import RunSettings

    settings = RunSettings(
        model=options.pooled(model, pool),
        dataset=options.name_dataset(dataset, root),
        out=out,
        root=root,
        data_options=options.parse_data_options(data_option),
        limit=limit,
        sample=sample,
        device=device,
        batch_size=batch_size,
        long=long,
        hop_s=hop,
        seed=seed,
        n_folds=folds,
        n_exact=exact,
        n_previews=previews,
        every_method=every_method,
    )
    carry_out(settings, json, quiet)


def carry_out(settings: RunSettings, json: bool, quiet: bool) -> None:
    """Run with a line a step, print what was found; exit 3 where clips were skipped."""
    from residual_audio.surface.whole_run import run_all

    with watching(quiet or json) as progress:
        finished = run_all(settings, progress)
    if json:
        print_json(summary(finished))
    else:
        show(finished, quiet)
    if finished.skipped:
        raise typer.Exit(3)


def show(finished: Finished, quiet: bool = False) -> None:
    """The table that a run ends with, and where its page is."""
    if not quiet and finished.adapted:
        rows = [
            [
                row["method"],
                row["kind"],
                row.get("parameters", ""),
                _percent(row.get("top1")),
                _gain(row),
            ]
            for row in chosen_rows(finished.adapted)
        ]
        columns = [
            "method",
            "kind",
            "trained numbers",
            "top-1",
            f"gain over {_reference(finished.adapted)}, 95% interval",
        ]
        print_table(
            columns, rows, "Strongest of each kind, on grouped folds (all: tables/adapted.csv)"
        )
    if not quiet and finished.zero_shot is not None:
        rows = [
            [s.name, f"{s.value:.3f}", f"{s.low:.3f} – {s.high:.3f}", str(s.n), _chance(s.chance)]
            for s in finished.zero_shot.scores
        ]
        print_table([finished.zero_shot.task, "value", "95% interval", "n", "chance"], rows)
    for line in finished.warnings:
        say(f"note: {line}", err=True)
    say(f"page: {finished.page}")


def chosen_rows(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The references, our methods, and the strongest control and baseline that they are to beat.

    Only what we are measured against is chosen by its score: that choice is never in our favour.
    """
    there = [row for row in rows if not row.get("failed") and row.get("top1")]
    chosen = [row for row in there if row["kind"] in ("reference", "residual", "network")]
    for kinds in (("control", "rule"), ("baseline",)):
        of_kind = [row for row in there if row["kind"] in kinds]
        chosen += sorted(of_kind, key=lambda row: -float(row["top1"]))[:1]
    return chosen


def summary(finished: Finished) -> dict[str, object]:
    """The same for programs."""
    scores = finished.zero_shot.scores if finished.zero_shot is not None else ()
    return {
        "page": str(finished.page),
        "n_clips": finished.n_clips,
        "skipped": finished.skipped,
        "left_out": finished.left_out,
        "warnings": finished.warnings,
        "zero_shot": [
            {"name": s.name, "value": s.value, "low": s.low, "high": s.high, "n": s.n}
            | {"chance": s.chance}
            for s in scores
        ],
        "adapted": finished.adapted,
    }


def _percent(value: str | None) -> str:
    return f"{float(value):.1%}" if value else "–"


def _reference(rows: list[dict[str, str]]) -> str:
    """What gains are over: zero-shot, or the nearest class centroid where there are no texts."""
    return next((row["method"] for row in rows if row["kind"] == "reference"), "zero-shot")


def _gain(row: dict[str, str]) -> str:
    if not row.get("gain"):
        return "–"
    low, high = float(row["gain_low"]), float(row["gain_high"])
    return f"{float(row['gain']):+.1%}  [{low:+.1%}, {high:+.1%}]"


def _chance(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
