"""`residual-audio demo`: everything at work in two minutes, with nothing but the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.run import carry_out


def run(
    data: Annotated[
        Path | None, typer.Option("--data", help="Your own folder, one sub-folder a class.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to put it.")] = Path("demo"),
    clips: Annotated[int, typer.Option("--clips", min=82, help="Synthetic clips to make.")] = 205,
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Make sounds, look inside the bundled model, reweight it, and end in a page.

    This is `residual-audio run` with the model `nano` and synthetic sounds; offline, no download.
    """
    from residual_audio.surface.whole_run import demo_settings

    carry_out(demo_settings(data, out, clips, seed), json, quiet)
