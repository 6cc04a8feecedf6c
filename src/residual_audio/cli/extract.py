"""`residual-audio extract`: run a model over a data set and keep what its heads did."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json
from residual_audio.cli.terminal import watching

SHOWN = 10  # reasons listed on a terminal; the clip index has every clip's own


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
    limit: options.Limit = None,
    sample: options.Sample = None,
    data_option: options.DataOption = None,
    batch_size: options.BatchSize = 8,
    device: options.Device = "auto",
    long: Annotated[
        Literal["first", "center"],
        typer.Option("--long", help="Which window of a clip longer than the model's."),
    ] = "first",
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
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start again, whatever is there.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Capture heads, blocks, stages or the direct path of every clip into OUT/store.

    Continues where a stopped run left off. Exit code 3: done, but some clips were skipped.
    """
    from residual_audio.data.registry import load_dataset
    from residual_audio.extraction.extraction import extract

    name = options.name_dataset(dataset, root)
    whole = load_dataset(name, root, **options.parse_data_options(data_option))
    data = whole.select(limit=limit, sample=sample, seed=seed)
    with watching(quiet or json) as progress:
        found = extract(
            model,
            data,
            out,
            capture=capture,
            batch_size=batch_size,
            shard_size=shard_size,
            device=device,
            long=long,
            seed=seed,
            n_threads=workers,
            engine=engine,
            processes=processes,
            ray_address=ray_address,
            overwrite=overwrite,
            progress=progress,
            sample={"n_maps": n_maps, "n_token_clips": n_token_clips},
        )
    summary = _summary(found, out)
    if json:
        print_json(summary)
    else:
        _print_summary(summary)
    if found.skipped:
        raise typer.Exit(3)


def _summary(found: Any, out: Path) -> dict[str, Any]:
    store = found.store
    return {
        "out": str(out),
        "model": store.model_info.name,
        "dataset": store.dataset_info.name,
        "capture": list(store.kinds),
        "n_ok": found.n_ok,
        "n_skipped": len(found.skipped),
        "skipped": group_reasons(found.reasons),
        "partial": store.partial and asdict(store.partial),
        "n_shards": store.size.n_shards,
        "n_shards_made": found.n_shards_made,
        "bytes_per_clip": round(store.size.shard_bytes / max(1, found.n_ok)),
    }


def group_reasons(reasons: dict[str, int]) -> dict[str, int]:
    """Reasons that differ only in their numbers, counted together; the most frequent first."""
    groups: dict[str, int] = {}
    for reason, n in reasons.items():
        key = re.sub(r"\d+(?:[.,]\d+)*", "…", reason)
        groups[key] = groups.get(key, 0) + n
    return dict(sorted(groups.items(), key=lambda group: -group[1]))


def _print_summary(summary: dict[str, Any]) -> None:
    partial = summary["partial"]
    of = f" (partial: {partial['n_clips']:,} of {partial['of']:,} clips)" if partial else ""
    typer.echo(
        f"{summary['n_ok']:,} clips of {summary['dataset']} through {summary['model']}{of}: "
        f"{', '.join(summary['capture'])}; {summary['bytes_per_clip'] / 1000:.1f} kB a clip "
        f"in {summary['out']}"
    )
    if not summary["n_shards_made"]:
        typer.echo("everything was there already")
    for reason, n in list(summary["skipped"].items())[:SHOWN]:
        typer.echo(f"skipped {n:,}: {reason}", err=True)
    if len(summary["skipped"]) > SHOWN:
        typer.echo(f"… and {len(summary['skipped']) - SHOWN:,} more reasons", err=True)
