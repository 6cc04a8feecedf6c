"""Assembles the commands and turns errors of this package into one line and an exit code.

Command files import only the standard library, typer and `cli` itself at the top; what is heavy
is imported inside the function that needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from residual_audio.cli import terminal
from residual_audio.errors import ResidualAudioError

# name on the command line → module of this package, which has `app` (a group) or `run`
COMMANDS: dict[str, str] = {
    "demo": "demo",
    "run": "run",
    "report": "report",
    "models": "models",
    "units": "units",
    "datasets": "datasets",
    "doctor": "doctor",
    "classify": "classify",
    "embed": "embed",
    "extract": "extract",
    "store": "store",
    "analyse": "analyse",
    "ablate": "ablate",
    "reweight": "reweight",
    "sweep": "sweep",
    "export": "export",
    "evaluate": "evaluate",
    "compa": "compa",
    "probe": "probe",
    "compare": "compare",
    "fad": "fad",
    "music": "music",
    "mushra": "mushra",
    "bench": "bench",
    "train": "train",
}
# other spellings, not shown in --help
ALIASES: dict[str, str] = {"analyze": "analyse"}


class _Root(TyperGroup):
    """Every command runs inside it: the one place that answers Ctrl-C."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo(terminal.farewell(), err=True)
            raise typer.Exit(130) from None


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        cls=_Root,
        name="residual-audio",
        help="Look inside CLAP audio encoders, reweight their heads, measure whether it helped.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, module_name in COMMANDS.items():
        module = import_module(f"residual_audio.cli.{module_name}")
        names = [name, *(alias for alias, target in ALIASES.items() if target == name)]
        for i, shown in enumerate(names):
            if hasattr(module, "app"):
                app.add_typer(module.app, name=shown, hidden=i > 0)
            else:
                app.command(shown, hidden=i > 0)(module.run)
    return app


def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True
    ),
) -> None:
    if version:
        from residual_audio import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Entry point: exit 0 done, 1 error, 2 usage, 3 done with clips skipped, 130 stopped."""
    try:
        build()()
    except ResidualAudioError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)
