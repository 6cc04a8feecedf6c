"""`residual-audio bench encode`: our encoder with all heads captured against transformers' CLAP."""

from __future__ import annotations

from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table
from residual_audio.cli.terminal import watching


def run(
    n_clips: Annotated[int, typer.Option("--clips", min=1, help="10 s clips to encode.")] = 24,
    batch_size: options.BatchSize = 8,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Best of so many.")] = 7,
    json: options.Json = False,
) -> None:
    """Decode → front-end → encoder at the real tiny size on CPU: ours with 184 heads, and HF's."""
    from residual_audio.benchmarks.encode import bench_encode

    with watching(json) as progress:
        progress.step("measuring", 3 * repeats)
        found = bench_encode(n_clips, batch_size, repeats, progress.advance)
    if json:
        print_json(found)
        return
    print_table(["", ""], [[key, f"{value:.4g}"] for key, value in found.items()])
