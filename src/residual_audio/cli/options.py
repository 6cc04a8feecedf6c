"""Options that several commands share, declared once: same name, same meaning, same help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
Seed = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results.")]
