"""`residual-audio timemap`: what each moment of a clip contributes to its score with a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, print_table, say


def run(
    clip: Annotated[Path, typer.Argument(help="A sound file.")],
    text: Annotated[list[str], typer.Argument(help="One text or several, a picture for each.")],
    model: options.Model = "nano",
    top: Annotated[int, typer.Option("--top", min=0, help="Name the N strongest units.")] = 5,
    device: options.Device = "auto",
    out: options.Out = None,
    json: options.Json = False,
) -> None:
    """Contributions over time, from the exact path of every head and MLP to the score.

    With --out, a picture over the mel (PNG and PDF) and a table for each text go to that folder.
    A contribution is read where the model has put the evidence, not where the sound must be.
    """
    from residual_audio.models.registry import load_model
    from residual_audio.report.time_map_picture import save_time_map
    from residual_audio.surface.patching import time_map

    loaded = load_model(model, device)
    shown, written = [], []
    for said in text:
        found = time_map(loaded, clip, said)
        strongest = sorted(found.parts, key=lambda name: -abs(found.parts[name].sum()))[:top]
        shown.append(
            {
                "text": said,
                "score": found.score,
                "rest": found.rest,
                "seconds": found.seconds.tolist(),
                "contribution": found.total.tolist(),
                "strongest": {name: float(found.parts[name].sum()) for name in strongest},
            }
        )
        if out is not None:
            written += save_time_map(found, out)
    if json:
        print_json({"maps": shown, "files": [path.name for path in written]})
        return
    for one in shown:
        rows = [
            [f"{at:.2f}", f"{value:+.4f}"]
            for at, value in zip(one["seconds"], one["contribution"], strict=True)
        ]
        title = f"{one['text']}: score {one['score']:.4f}, of it {one['rest']:.4f} without a time"
        print_table(["s", "contribution"], rows, title)
        for name, value in one["strongest"].items():
            say(f"{name}: {value:+.4f}")
    if written:
        say(f"{len(written)} files in {out}")
