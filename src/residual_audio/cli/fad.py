"""`residual-audio fad`: how far is one folder of sound from another?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table
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
    from residual_audio.embeddings.embedder import EmbeddingSettings
    from residual_audio.errors import InputError
    from residual_audio.generation.fad import compare_sides
    from residual_audio.generation.sound_side import read_side, write_statistics
    from residual_audio.models.registry import load_model
    from residual_audio.report import figures_evaluation as plots
    from residual_audio.report.style import save
    from residual_audio.results import result_to_dict, write_result

    if evaluated is None and save_stats is None:
        raise InputError(
            "give the folder to judge, or --save-stats to keep the reference's numbers"
        )
    sources = [reference, *([evaluated] if evaluated is not None else [])]
    for source in sources:
        if not source.exists():
            raise InputError(f"'{source}' is not there")
    loaded = load_model(model, device)
    how = EmbeddingSettings(batch_size=batch_size, cache=not no_cache)
    with watching(quiet or json) as progress:
        sides = [read_side(s, loaded, embedding=how, progress=progress) for s in sources]
    if save_stats is not None:
        write_statistics(sides[0], loaded, save_stats)
    if evaluated is None:
        if json:
            print_json({"statistics": str(save_stats), "n": sides[0].gaussian.n})
        elif not quiet:
            typer.echo(f"written: {save_stats} ({sides[0].gaussian.n} windows)")
        return
    found = compare_sides(sides[0], sides[1], loaded, infinity=infinity, seed=seed)
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
            typer.echo(f"note: {warning}", err=True)
    finish([found.result], [path], json, quiet)
