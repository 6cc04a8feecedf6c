"""`residual-audio embed`: unit vectors of files, as one safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json
from residual_audio.cli.terminal import watching


def run(
    files: Annotated[list[Path], typer.Argument(help="Audio files.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write (.safetensors).")],
    model: options.Model = "nano",
    long: options.Long = "first",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Embed FILES into `embeddings` [n, d], with names, model and sha256 in the header."""
    from residual_audio.embeddings.of_files import embed_files
    from residual_audio.models.registry import load_model
    from residual_audio.passes.loop import Hearing

    loaded = load_model(model, device)
    with watching(quiet or json) as progress:
        found = embed_files(loaded, files, out, Hearing(long, batch_size), progress=progress)
    if json:
        print_json({"out": str(out), "n": len(found.files), "skipped": found.skipped})
    else:
        for file, reason in found.skipped.items():
            typer.echo(f"skipped {file}: {reason}", err=True)
        typer.echo(f"wrote {len(found.files)} × {loaded.joint_dim} vectors to {out}")
    if found.skipped:
        raise typer.Exit(3)
