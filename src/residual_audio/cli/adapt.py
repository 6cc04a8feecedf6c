"""`residual-audio adapt`: a model adapted to your own pairs, judged and written as a checkpoint."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from residual_audio.cli import options
from residual_audio.cli.inputs import load_datasets
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.terminal import watching

SHOWN = 10
"""Clips that are named on a terminal."""


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the work; resumed if there.")],
    model: options.Model = "nano",
    dataset: options.Dataset = None,
    root: options.Root = None,
    data_option: options.DataOption = None,
    how: Annotated[
        Literal["residual", "lora", "head", "all"],
        typer.Option(
            "--how",
            help="Gains on components of heads, low-rank updates, the joint head, or every weight "
            "of the encoder.",
        ),
    ] = "residual",
    to: Annotated[
        Literal["native", "hf", "laion", "peft", "onnx"],
        typer.Option("--to", help="Layout of the checkpoint; peft for residual and lora."),
    ] = "native",
    folds: options.NFolds = 5,
    epochs: Annotated[
        int | None, typer.Option("--epochs", min=1, help="At most so many (default: by method).")
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option("--licence", help="Of the base, where its card does not say it."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option("--push", help="Repository on the hub to put it into; a new one is private."),
    ] = None,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Adapt a model to a table of files with labels or captions, in one command.

    Judged on grouped folds (no clip is scored by what was fitted on it), then fitted on all clips
    and written below OUT with a model card. Run it again to continue where it stopped.
    """
    from residual_audio.surface.adapted_pairs import adapt_pairs
    from residual_audio.surface.model import load_model
    from residual_audio.surface.pushed import check_repository, push

    check_repository(repository)
    names = None if dataset is None else [dataset]
    roots = None if root is None else [root]
    (data,) = load_datasets(names, roots, data_option)
    with watching(quiet or json) as progress:
        found = adapt_pairs(
            load_model(model, device),
            data,
            out,
            how=how,
            to=to,
            n_folds=folds,
            seed=seed,
            epochs=epochs,
            licence=licence,
            progress=progress,
        )
    scores = (found.before, found.after, found.gain)
    if repository is not None:
        say(f"pushed to {push(found.checkpoint, repository)}", err=json)
    if json:
        print_json(
            {
                "scores": [asdict(score) for score in scores],
                "checkpoint": str(found.checkpoint),
                "result": str(found.result),
                "skipped": found.skipped,
                "note": found.note,
            }
        )
    else:
        rows = [
            [s.name, f"{s.value:.3f}", f"{s.low:.3f} to {s.high:.3f}", s.n,
             "" if s.chance is None else f"{s.chance:.3f}"]
            for s in scores
        ]  # fmt: skip
        print_table(["score", "value", "95% interval", "n", "chance"], rows, f"adapted by {how}")
        say(f"{found.checkpoint} holds the model, fitted on all clips, with its card")
    if found.note:
        say(f"note: {found.note}", err=True)
    for name, why in list(found.skipped.items())[:SHOWN]:
        say(f"skipped {name}: {why}", err=True)
    if len(found.skipped) > SHOWN:
        say(f"… and {len(found.skipped) - SHOWN:,} more: --json names all", err=True)
    if found.skipped:
        raise typer.Exit(3)
