"""`residual-audio extract`: run a model over a data set and keep what its heads did."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, say
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.extraction.batch_parts import PartMade, Planned
    from residual_audio.extraction.summary import ExtractionSummary

SHOWN = 10  # reasons and clips listed on a terminal; the clip index has every clip's own


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder; the store goes below it.")],
    model: options.Model = "nano",
    dataset: options.Dataset = None,
    root: options.Root = None,
    capture: Annotated[
        str,
        typer.Option(
            "--capture",
            help="heads, blocks, stages, direct, moments, attention, tokens; a,b,c or all.",
        ),
    ] = "heads",
    fold: options.Folds = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    data_option: options.DataOption = None,
    batch_size: options.BatchSize = 8,
    device: options.Device = "auto",
    precision: Annotated[
        Literal["float32", "bf16", "fp16"],
        typer.Option("--precision", help="Of the encoder's products; half the bits, faster."),
    ] = "float32",
    long: Annotated[
        Literal["first", "center", "tile"],
        typer.Option("--long", help="Clips longer than the window; tile: a row a window."),
    ] = "first",
    hop: options.Hop = None,
    pool: options.Pool = "all",
    seed: options.Seed = 0,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Threads that read ahead of the encoder.")
    ] = 2,
    shard_size: Annotated[int, typer.Option("--shard-size", min=1, help="Clips a shard.")] = 128,
    n_maps: Annotated[
        int, typer.Option("--n-maps", min=1, help="attention: window maps kept a site.")
    ] = 128,
    n_token_clips: Annotated[
        int, typer.Option("--n-token-clips", min=1, help="tokens: clips kept token by token.")
    ] = 16,
    engine: Annotated[
        Literal["local", "ray"], typer.Option("--engine", help="Where shards are made.")
    ] = "local",
    processes: Annotated[
        int, typer.Option("--processes", min=1, help="Workers that each load the model.")
    ] = 1,
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Ray cluster; none: one on this machine.")
    ] = None,
    cpus_each: Annotated[
        float | None,
        typer.Option("--cpus-each", min=0.01, help="ray: cores of a worker (1; 3 beside a GPU)."),
    ] = None,
    gpus_each: Annotated[
        float | None,
        typer.Option("--gpus-each", min=0.0, help="ray: GPUs of a worker, 0.25 for a quarter."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start again, whatever is there.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only write down what is to be done, for --part.")
    ] = False,
    part: Annotated[
        str | None, typer.Option("--part", help="Only part i/n of a plan, such as 3/8.")
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="Only close a run whose parts are all there.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Capture heads, blocks, stages or the direct path of every clip into OUT/store.

    Continues where a stopped run left off. Exit code 3: done, but some clips were skipped. For
    batch systems: the same command with --plan, then with --part 1/n to n/n in any order, anywhere,
    then with --finish.
    """
    from residual_audio.data.registry import load_dataset, parse_name
    from residual_audio.data.remembered import RunSource, remember_source
    from residual_audio.errors import InputError
    from residual_audio.extraction.batch_parts import (
        RunPart,
        extract_part,
        finish_parts,
        plan_parts,
    )
    from residual_audio.extraction.extract_settings import ExtractOptions
    from residual_audio.extraction.summary import summarise
    from residual_audio.surface.runs import extract

    model = options.pooled(model, pool)
    if plan + finish + (part is not None) > 1:
        raise InputError("give one of --plan, --part and --finish: they are three steps")
    name = options.name_dataset(dataset, root)
    given = options.parse_data_options(data_option)
    whole = load_dataset(name, root, **given)
    data = whole.select(folds=fold or None, limit=limit, sample=sample, seed=seed)
    how: ExtractOptions = {
        "capture": capture,
        "batch_size": batch_size,
        "shard_size": shard_size,
        "device": device,
        "precision": precision,
        "long": long,
        "hop_s": hop,
        "seed": seed,
        "n_threads": workers,
        "engine": engine,
        "processes": processes,
        "ray_address": ray_address,
        "cpus_each": cpus_each,
        "gpus_each": gpus_each,
        "overwrite": overwrite,
        "sample": {"n_maps": n_maps, "n_token_clips": n_token_clips},
    }
    if plan:
        _print_plan(plan_parts(model, data, out, **how), out, json)
        return
    with watching(quiet or json) as progress:
        source = RunSource(whole.name, root, {**parse_name(name)[1], **given})
        if part is not None:
            made = extract_part(model, data, out, RunPart.parse(part), progress=progress, **how)
        elif finish:
            found = finish_parts(model, data, out, **how)
            remember_source(out, source)
        else:
            extracted = extract(model, data, out, source=source, progress=progress, **how)
            assert extracted.extraction is not None
            found = extracted.extraction
    if part is not None:
        _print_part(made, part, json)
        return
    summary = summarise(found, out)
    if json:
        print_json(summary)
    else:
        _print_summary(summary)
    if found.skipped:
        raise typer.Exit(3)


def _print_plan(planned: Planned, out: Path, json: bool) -> None:
    if json:
        print_json(asdict(planned))
        return
    say(
        f"{planned.n_clips:,} clips in {planned.n_shards:,} shards are planned in {out}: run the "
        "same command with --part 1/n … n/n, then with --finish"
    )


def _print_part(made: PartMade, part: str, json: bool) -> None:
    if json:
        print_json(asdict(made))
    else:
        say(
            f"part {part}: {made.n_shards:,} shards of {made.n_clips:,} clips, {made.n_made:,} "
            f"made now; {len(made.skipped):,} clips skipped"
        )
    if made.skipped:
        raise typer.Exit(3)


def _print_summary(summary: ExtractionSummary) -> None:
    heard = f"{summary['n_recordings']:,} clips"
    if summary["n_ok"] != summary["n_recordings"]:
        heard = f"{summary['n_ok']:,} windows of {heard}"
    partial = summary["partial"]
    of = f" (partial: {partial['n_clips']:,} of {partial['of']:,} clips)" if partial else ""
    say(
        f"{heard} of {summary['dataset']} through {summary['model']}{of}: "
        f"{', '.join(summary['capture'])}; {summary['bytes_per_clip'] / 1000:.1f} kB a clip "
        f"in {summary['out']}"
    )
    if not summary["n_shards_made"]:
        typer.echo("everything was there already")
    if summary["n_shards_failed"]:
        say(
            f"{summary['n_shards_failed']:,} of {summary['n_shards']:,} shards failed; the same "
            "command tries them again",
            err=True,
        )
    for reason, n in list(summary["skipped"].items())[:SHOWN]:
        say(f"skipped {n:,}: {reason}", err=True)
    if len(summary["skipped"]) > SHOWN:
        say(f"… and {len(summary['skipped']) - SHOWN:,} more reasons", err=True)
    for note in summary["notes"]:
        say(f"note: {note}", err=True)
    for title, clips in (("skipped", summary["skipped_clips"]), ("odd", summary["remarks"])):
        for clip, why in list(clips.items())[:SHOWN]:
            say(f"{title}: {clip}: {why}", err=True)
        if len(clips) > SHOWN:
            say(f"{title}: {len(clips) - SHOWN:,} more clips (--json names all)", err=True)
    if summary["heard_before"] and summary["heard_before"]["note"]:
        say(f"note: {summary['heard_before']['note']}", err=True)
