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
        Literal["hf", "laion", "native", "peft", "onnx"],
        typer.Option(
            "--to", help="Layout; peft: the gains alone, as an adapter; onnx: the audio tower."
        ),
    ] = "native",
    amount: Annotated[
        float, typer.Option("--amount", help="1: the gains as they are; 0: none of them.")
    ] = 1.0,
    heads: Annotated[
        bool, typer.Option("--heads", help="With onnx: what every head gives out, too.")
    ] = False,
    result: Annotated[
        list[Path] | None,
        typer.Option("--result", help="Result JSON whose scores go into the card; repeatable."),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option("--licence", help="Of the base, where its card does not say it."),
    ] = None,
    push: Annotated[
        str | None,
        typer.Option("--push", help="Repository on the hub to put it into; a new one is private."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fold gains into a model's weights and write an ordinary checkpoint: no cost at run time.

    Every export carries a model card (README.md) and a record of what was folded into what.
    """
    from residual_audio.models import hub
    from residual_audio.models.registry import load_model
    from residual_audio.results import read_result
    from residual_audio.reweight.folded_checkpoint import Wrapping, export_folded, exported_files
    from residual_audio.reweight.gain_files import load_gains

    if push is not None:
        hub.check_repository(push)
    scores = tuple(read_result(path) for path in result or ())
    loaded = load_model(model, "cpu")
    found = [load_gains(path) for path in gains]
    wrapping = Wrapping(scores, licence, heads)
    record = export_folded(loaded, found, to, out, amount=amount, wrapping=wrapping)
    if push is not None:
        where = hub.push(exported_files(out), push)
        typer.echo(f"pushed to {where}", err=json)
    if json:
        print_json(asdict(record))
        return
    typer.echo(
        f"{record.gains:,} gains folded into {record.model}, written to {out} ({to}); "
        f"embeddings of the checkpoint and of the edited model differ by {record.difference:.1e}"
    )
