"""`residual-audio export`: a checkpoint with the gains folded in, for any tool to open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, say


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
    repository: Annotated[
        str | None,
        typer.Option("--push", help="Repository on the hub to put it into; a new one is private."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Fold gains into a model's weights and write an ordinary checkpoint: no cost at run time.

    Every export carries a model card (README.md) and a record of what was folded into what.
    """
    from residual_audio.results import read_result
    from residual_audio.surface.folded import fold
    from residual_audio.surface.model import load_model
    from residual_audio.surface.pushed import check_repository, push

    check_repository(repository)
    scores = [read_result(path) for path in result or ()]
    folded = fold(load_model(model, "cpu"), gains, amount)
    folded.save(out, to, results=scores, licence=licence, heads=heads)
    if repository is not None:
        say(f"pushed to {push(out, repository)}", err=json)
    base, n = folded.made.base.name, folded.n_gains
    if json:
        about = {"model": base, "to": to, "out": str(out), "gains": n}
        print_json({**about, "difference": folded.difference})
        return
    say(
        f"{n:,} gains folded into {base}, written to {out} ({to}); "
        f"embeddings of the checkpoint and of the edited model differ by {folded.difference:.1e}"
    )
