"""`residual-audio classify`: zero-shot labels for a few files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.inputs import load_model_with
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.scores import name_clips
from residual_audio.cli.terminal import watching


def run(
    files: Annotated[list[Path], typer.Argument(help="Audio files, or folders of them.")],
    labels: Annotated[str, typer.Option("--labels", help="Comma-separated labels or phrases.")],
    model: options.Model = "nano",
    gains: options.Gains = None,
    template: Annotated[
        str, typer.Option("--template", help="Prompt; {} stands for the label.")
    ] = "This is a sound of {}.",
    long: options.Long = "first",
    top: Annotated[int, typer.Option("--top", min=1, help="Labels to show a file.")] = 5,
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    json: options.Json = False,
) -> None:
    """Score FILES against free-text labels; scores of a file sum to 1 over the labels."""
    from residual_audio.surface.classified import Hearing, classify_each, given_files

    files = given_files(files)
    how = Hearing(long, batch_size)
    loaded = load_model_with(model, device, gains)
    with watching(json) as progress:
        found = classify_each(loaded, files, labels, template=template, how=how, progress=progress)
    odd = {str(files[place]): why for place, why in found.remarks.items()}
    answers = [(files[place], scores) for place, scores in found.labels.items()]
    failed = [(files[place], reason) for place, reason in found.skipped.items()]
    if json:
        print_json(
            [
                {"file": str(file), "labels": [{"label": n, "score": s} for n, s in scores]}
                | ({"odd": odd[str(file)]} if str(file) in odd else {})
                for file, scores in answers
            ]
            + [{"file": str(file), "error": reason} for file, reason in failed]
        )
    else:
        rows = [
            [file.name if i == 0 else "", name, f"{score:.3f}"]
            for file, scores in answers
            for i, (name, score) in enumerate(scores[:top])
        ]
        if rows:
            print_table(["file", "label", "score"], rows)
        for _, reason in failed:
            say(f"skipped: {reason}", err=True)
        name_clips("odd", odd)
    if failed:
        raise typer.Exit(3 if answers else 1)
