"""`residual-audio export`: a checkpoint with the gains folded in, for any tool to open."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json


def run(
    gains: Annotated[
        list[Path], typer.Option("--gains", "-g", help="Gains with path network; repeatable.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder (or .pt file for laion).")],
    model: options.Model = "nano",
    to: Annotated[
        Literal["hf", "laion", "native"], typer.Option("--to", help="Layout of the checkpoint.")
    ] = "native",
    amount: Annotated[
        float, typer.Option("--amount", help="1: the gains as they are; 0: none of them.")
    ] = 1.0,
    json: options.Json = False,
) -> None:
    """Fold gains into a model's weights and write an ordinary checkpoint: no cost at run time."""
    from residual_audio.models.registry import load_model
    from residual_audio.reweight.folded_checkpoint import export_folded
    from residual_audio.reweight.gain_files import load_gains

    loaded = load_model(model, "cpu")
    found = [load_gains(path) for path in gains]
    record = export_folded(loaded, found, to, out, amount=amount)
    if json:
        print_json(asdict(record))
        return
    typer.echo(
        f"{record.gains:,} gains folded into {record.model}, written to {out} ({to}); "
        f"embeddings of the checkpoint and of the edited model differ by {record.difference:.1e}"
    )
