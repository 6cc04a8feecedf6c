"""`residual-audio atlas`: see, hear and move what every head of a run does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_json, say
from residual_audio.cli.terminal import watching


def run(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    other: Annotated[
        Path | None, typer.Argument(help="A second run to put beside it.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to put it (RUN/atlas).")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    single_file: Annotated[
        bool, typer.Option("--single-file", help="Everything in one HTML file.")
    ] = False,
    features: Annotated[
        Path | None,
        typer.Option(
            "--features", help="Units from elsewhere: .json, .safetensors, SAELens folder."
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            "--unit", help="The SAELens folder reads tokens of this unit; clips are heard again."
        ),
    ] = None,
    root: options.Root = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write RUN's head atlas: a static site that opens from the file system; no model is loaded,
    except for --unit."""
    from residual_audio.surface.atlas_view import atlas
    from residual_audio.surface.runs import Run

    with watching(quiet or json) as progress:
        made = atlas(
            Run(run, root=root), other, out=out, single_file=single_file, features=features,
            unit=unit, progress=progress,
        )  # fmt: skip
    if json:
        size = {"bytes": made.n_bytes, "files": len(made.files), "missing": made.missing}
        print_json({"page": str(made.page), **size})
    else:
        for line in made.missing:
            say(f"missing: {line}", err=True)
        say(f"{made.page} ({made.n_bytes / 1e6:.1f} MB)")
    if open_it:
        made.open()
