"""`residual-audio store`: what a store holds, whether it is whole, and a copy for other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from residual_audio.cli import options
from residual_audio.cli.groups import Group
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

app = typer.Typer(
    cls=Group, help="Look into a store, verify every byte of it, export it.", no_args_is_help=True
)

Path_ = Annotated[Path, typer.Argument(metavar="PATH", help="Run folder, or the store below it.")]


@app.command("info")
def info(path: Path_, json: options.Json = False) -> None:
    """Say what is in a store: model, data, kinds, arrays, sizes."""
    from residual_audio.store import open_store

    store = open_store(path)
    model, partial, size = store.model_info, store.partial, store.size
    record: dict[str, Any] = {
        "folder": str(store.folder),
        "model": asdict(model),
        "dataset": asdict(store.dataset_info),
        "capture": store.asked["capture"],
        "run": asdict(store.run_info),
        "partial": partial and asdict(partial),
        "n_clips": size.n_clips,
        "n_ok": len(store),
        "skipped": store.skipped,
        "n_heads": len(store.all_heads),
        "n_shards": size.n_shards,
        "bytes": size.n_bytes,
        "has_text": store.has_text,
        "arrays": store.array_specs,
        "provenance": store.provenance,
    }
    if json:
        print_json(record)
        return
    made = store.provenance
    rows = [
        ["model", f"{model.name} ({model.family})"],
        ["model sha256", model.sha256],
        ["data set", record["dataset"]["name"]],
        [
            "windows" if store.has_windows else "clips",
            f"{len(store):,} ok, {len(store.skipped):,} skipped",
        ],
        ["partial", f"{partial.n_clips:,} of {partial.of:,}" if partial else "no"],
        ["captured", ", ".join(store.kinds)],
        ["heads", len(store.all_heads)],
        ["text", f"{len(store.texts()[0]):,} embedded" if store.has_text else "no text side"],
        ["size", f"{size.n_bytes / 1e6:,.1f} MB in {size.n_shards} shards"],
        ["made", f"{made['created_utc']} by {made['version']}"],
    ]
    print_table(["", ""], rows, title=str(store.folder))
    print_table(
        ["array", "type", "shape of a row"],
        [
            [name, spec["dtype"], " × ".join(map(str, spec["shape"])) or "1"]
            for name, spec in _by_group(store.array_specs).items()
        ],
    )


def _by_group(arrays: dict[str, Any]) -> dict[str, Any]:
    """One line for arrays of all sites that have the same shape."""
    import re

    groups: dict[str, Any] = {}
    for name, spec in arrays.items():
        stage_only = re.sub(r"(s\d+)\.b\d+", r"\1.b*", name)
        groups.setdefault(stage_only, spec)
    return groups


@app.command("verify")
def verify(path: Path_, json: options.Json = False) -> None:
    """Read every byte and compare it with what was written. Exit code 1 where anything differs."""
    from residual_audio.store.verify import verify_store

    with watching(json) as progress:
        problems = verify_store(path, progress)
    if json:
        print_json({"path": str(path), "intact": not problems, "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo("damaged" if problems else "intact: every file is what was written")
    if problems:
        raise typer.Exit(1)


@app.command("export")
def export(
    path: Path_,
    to: Annotated[Path, typer.Option("--to", help="x.h5, x.zarr or x.npz.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    json: options.Json = False,
) -> None:
    """Copy everything into one HDF5, Zarr or NPZ file."""
    from residual_audio.store import open_store
    from residual_audio.store.other_formats import export_store

    with watching(json) as progress:
        written = export_store(open_store(path), to, overwrite, progress)
    if json:
        print_json({"out": str(written)})
    else:
        say(f"wrote {written}")
