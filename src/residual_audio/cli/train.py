"""`residual-audio train`: contrastive audio–text training, with dimension tracking."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import options
from residual_audio.cli.terminal import watching


def run(
    recipe: Annotated[
        str, typer.Argument(help="A recipe: a .toml or .json file, or the name of a bundled one.")
    ] = "nano",
    root: Annotated[
        Path, typer.Option("--root", help="Folder that the recipe's files are below.")
    ] = Path(),
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the run; resumed if there.")
    ] = Path("train"),
    stage: Annotated[
        str, typer.Option("--stage", help="text, audio, tune, order, compose, wording, all.")
    ] = "all",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="section.key=value laid over the recipe; may be repeated."),
    ] = None,
    stop_after: Annotated[
        int | None, typer.Option("--stop-after", min=1, help="End after this step, to go on later.")
    ] = None,
    device: options.Device = "auto",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads (default: torch's choice).")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Train an audio–text model from a recipe: a text tower first, then audio and text together.

    Run the same command again to continue where it stopped.
    """
    import torch

    from residual_audio.models.clap import choose_device
    from residual_audio.training.recipe import load_recipe
    from residual_audio.training.training import run_training

    if threads is not None:
        torch.set_num_threads(threads)
    chosen = load_recipe(recipe, settings or [])
    with watching(quiet) as progress:
        folder = run_training(
            chosen,
            root,
            out,
            choose_device(device),
            stage=stage,
            stop_after=stop_after,
            progress=progress,
            tensorboard=tensorboard,
        )
    typer.echo(str(folder))
