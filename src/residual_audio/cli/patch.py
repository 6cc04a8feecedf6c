"""`residual-audio patch`: put values of one clip into another, and see which units carry what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.output import print_json, say, show_table
from residual_audio.cli.terminal import watching


def run(
    model: options.Model = "nano",
    dataset: options.Dataset = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    units: Annotated[
        list[str] | None,
        typer.Option(
            "--units",
            "-u",
            help="head, attention, mlp, stage, stream, s3.*.h*, s2.b0.stream, name=a+b; many.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="exact, or attribution (one backward pass); repeatable."),
    ] = None,
    path: Annotated[
        Literal["total", "direct"],
        typer.Option(
            "--path", help="total: through everything after; direct: to the latent alone."
        ),
    ] = "total",
    measure: Annotated[
        Literal["difference", "margin", "embedding"],
        typer.Option("--measure", help="What is measured; see the page on composition."),
    ] = "difference",
    between: Annotated[
        str | None, typer.Option("--between", help="Only tokens of these seconds, as 0:2.5.")
    ] = None,
    windows: Annotated[
        int, typer.Option("--windows", min=0, help="Also exchange each of N time windows alone.")
    ] = 0,
    time_units: Annotated[
        list[str] | None,
        typer.Option("--time-units", help="What --windows exchanges (s*.b0.stream); repeatable."),
    ] = None,
    sets: Annotated[
        int, typer.Option("--sets", min=0, help="Also sets of up to N units, by greedy search.")
    ] = 0,
    limit: options.Limit = None,
    min_gap: Annotated[
        float, typer.Option("--min-gap", help="Pairs with a smaller gap are named and left out.")
    ] = 1e-3,
    long: options.Long = "first",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 4,
    seed: options.Seed = 0,
    out: options.RunOut = Path("patching"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Exchange units between the two clips of every pair, both ways, and measure each.

    A labelled data set without pairs gives pairs of clips of different classes; a model without
    texts tells them apart by class centroids of other clips.

    An effect of 0 leaves the corrupt clip as it was, 1 makes it the clean one. Writes
    tables/patching_*.csv, figures and a result file below --out. Stopped, the same command goes on.
    """
    from residual_audio.errors import InputError
    from residual_audio.report.figures import draw_all
    from residual_audio.report.write import write_tables
    from residual_audio.results import write_result
    from residual_audio.surface.model import load_model
    from residual_audio.surface.pair_study import (
        METHODS,
        TIME_UNITS,
        ExchangeWay,
        PatchStudy,
        SetSearch,
        patching_study,
    )

    methods = method or ["exact"]
    for one in methods:
        if one not in METHODS:
            raise InputError(f"'{one}' is no method: use {', '.join(METHODS)}")
    given_options = list(data_option or [])
    if root and not dataset:
        raise InputError("--root needs to know what lies there: -d compa-order, manifest, joined …")
    name = dataset or "synthetic"
    loaded = load_model(model, device)
    unsaid = not any(o.startswith("kind=") for o in given_options)
    if name == "synthetic" and unsaid and loaded.text is not None:
        given_options.append("kind=order")  # without texts, sounds of different classes
    (data,) = inputs.load_datasets([name], [root] if root else None, given_options)
    ways = [
        ExchangeWay(one, path, _seconds(between), batch_size, min_gap)  # type: ignore[arg-type]
        for one in methods
    ]
    study = PatchStudy(
        units or ["head"],
        ways,
        windows,
        time_units or TIME_UNITS,
        SetSearch(sets, seed=seed) if sets else None,
        seed,
    )
    with watching(quiet or json) as progress:
        found = patching_study(
            loaded,
            data,
            study,
            measure=measure,
            limit=limit,
            long=long,
            keep=out / "patching",
            progress=progress,
        )
    written = write_tables(out, found.tables)
    written.append(write_result(found.result, out / "results"))
    written += draw_all(out, ["patching_heads", "patching_sets", "patching_time"])
    if json:
        print_json({"n_exchanges": found.n_exchanges, "files": [p.name for p in written]})
    else:
        shown = ["unit", "effect", "effect_low", "effect_high", "effect_by_gap", "p", "q", "n"]
        for table in found.tables:
            if table.name.startswith("patching_units"):
                show_table(table.top("effect_by_gap", 10), shown)
                for note in table.notes:
                    typer.echo(note, err=True)
            elif table.name in ("patching_agreement", "patching_sets", "patching_time"):
                show_table(table, list(table.columns))
        say(f"{len(written)} files below {out}")
    for clip, why in list(found.skipped.items())[:5]:
        say(f"skipped: {clip}: {why}", err=True)
    if found.skipped:
        raise typer.Exit(3)


def _seconds(text: str | None) -> tuple[float, float] | None:
    from residual_audio.errors import InputError
    from residual_audio.models.token_times import check_range

    if text is None:
        return None
    try:
        return check_range([float(part) for part in text.split(":")])
    except ValueError:
        raise InputError(f"'{text}' is no range of seconds: write it as 0:2.5") from None
