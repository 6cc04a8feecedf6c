"""`residual-audio fad`: how far is one folder of sound from another?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.scores import finish, print_scores, shown
from residual_audio.cli.terminal import watching


def run(
    reference: Annotated[Path, typer.Argument(help="Folder of audio, or a statistics file.")],
    evaluated: Annotated[
        Path | None, typer.Argument(help="Folder of audio to judge; leave out with --save-stats.")
    ] = None,
    model: options.Model = "nano",
    infinity: Annotated[
        bool, typer.Option("--infinity/--no-infinity", help="Extrapolate to infinite samples.")
    ] = True,
    save_stats: Annotated[
        Path | None,
        typer.Option("--save-stats", help="Write the reference's statistics (.npz, .safetensors)."),
    ] = None,
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    no_cache: options.NoCache = False,
    log_items: Annotated[
        bool, typer.Option("--log-items", help="Also write the score of every file, as parquet.")
    ] = False,
    out: options.ResultsOut = Path("results"),
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fréchet audio distance between two folders, FAD∞, kernel distance, and the files furthest.

    Long files count as several windows; files are resampled whole.
    """
    from residual_audio.errors import InputError
    from residual_audio.report import figures_evaluation as plots
    from residual_audio.report.style import save
    from residual_audio.results import result_to_dict, write_result
    from residual_audio.surface.generated import (
        HearingOptions,
        sound_distance,
        sound_statistics,
    )

    for source in (reference, evaluated):
        if source is not None and not source.exists():
            raise InputError(f"'{source}' is not there")
    how: HearingOptions = {"device": device, "batch_size": batch_size, "cache": not no_cache}
    if evaluated is None:
        if save_stats is None:
            raise InputError(
                "give the folder to judge, or --save-stats to keep the reference's numbers"
            )
        with watching(quiet or json) as progress:
            side = sound_statistics(model, reference, save_stats, progress=progress, **how)
        if json:
            print_json({"statistics": str(save_stats), "n": side.gaussian.n})
        elif not quiet:
            say(f"written: {save_stats} ({side.gaussian.n} windows)")
        return
    with watching(quiet or json) as progress:
        found = sound_distance(
            model,
            reference,
            evaluated,
            infinity=infinity,
            seed=seed,
            statistics=save_stats,
            progress=progress,
            **how,
        )
    path = write_result(found.result, out, items=log_items)
    if found.extrapolated is not None:
        save(plots.extrapolation(found.extrapolated), path.with_suffix(".png"))
    if json:
        print_json(result_to_dict(found.result))
    else:
        details, items = found.result.details, found.result.per_item or {}
        print_scores([found.result])
        worst = sorted(zip(items["distance"], items["file"], strict=True), reverse=True)[:5]
        print_table(
            ["file", "distance", ""],
            [[f, shown(d), "outlier" if f in details["outliers"] else ""] for d, f in worst],
            "Furthest from the reference",
        )
        for warning in details["warnings"]:
            say(f"note: {warning}", err=True)
    finish([found.result], [path], json, quiet)
