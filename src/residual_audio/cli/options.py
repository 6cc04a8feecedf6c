"""Options that several commands share, declared once: same name, same meaning, same help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="nano, hf:<repo or folder>, laion:<file.pt>, msclap:<file.pth> …"
    ),
]
Models = Annotated[
    list[str], typer.Option("--model", "-m", help="A model name; give it several times to compare.")
]
Dataset = Annotated[
    str, typer.Option("--dataset", "-d", help="Name of a data set (see `datasets`).")
]
Root = Annotated[Path | None, typer.Option("--root", help="Folder of the data set.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Clips in one forward pass.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Use only N clips, spread over the set; stamped partial."),
]
Long = Annotated[
    Literal["first", "center", "tile"],
    typer.Option("--long", help="Clips longer than the window: first, center or tile."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data-option", help="Option of the data set, as name=value (`datasets show`)."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results.")]


def parse_data_options(given: list[str] | None) -> dict[str, Any]:
    """`n_clips=100` → {"n_clips": 100}: numbers, true and false as such, all else as text."""
    from residual_audio.errors import InputError

    found: dict[str, Any] = {}
    for item in given or []:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError(f"'{item}' is not an option of a data set: write name=value")
        try:
            found[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            found[name.replace("-", "_")] = value
    return found
