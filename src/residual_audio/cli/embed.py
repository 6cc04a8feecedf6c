"""`residual-audio embed`: unit vectors of files, as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, say
from residual_audio.cli.scores import name_clips
from residual_audio.cli.terminal import watching


def run(
    files: Annotated[list[Path], typer.Argument(help="Audio files, or folders of them.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="File to write: .safetensors, .npz, .csv or .parquet."),
    ],
    model: options.Model = "nano",
    gains: options.Gains = None,
    long: options.Long = "first",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write one vector of unit length for each of FILES, with what made them.

    safetensors and npz hold `embeddings` [n, d] and the names of the files, parquet a column
    `embedding`, csv a column a dimension. Any other name is refused.
    """
    from residual_audio.surface.vectors import write_vectors

    with watching(quiet or json) as progress:
        found = write_vectors(
            model,
            files,
            out,
            gains=gains,
            long=long,
            batch_size=batch_size,
            device=device,
            progress=progress,
        )
    if json:
        print_json(
            {"out": str(out), "n": len(found.files), "skipped": found.skipped, "odd": found.remarks}
        )
    else:
        for file, reason in found.skipped.items():
            say(f"skipped {file}: {reason}", err=True)
        name_clips("odd", found.remarks)
        say(f"wrote {len(found.files)} × {found.width} vectors to {out}")
    if found.skipped:
        raise typer.Exit(3)
