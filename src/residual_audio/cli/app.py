"""Assembles the commands and turns errors of this package into one line and an exit code.

Command files import only the standard library, typer and `cli` itself at the top; what is heavy
is imported inside the function that needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import typer

from residual_audio.cli import terminal
from residual_audio.cli.examples import epilog
from residual_audio.cli.groups import Group
from residual_audio.cli.output import say
from residual_audio.errors import ResidualAudioError

# group in --help → name on the command line → module of this package, which has `app` (a group of
# commands) or `run`
GROUPS: dict[str, dict[str, str]] = {
    "Start here": {
        "demo": "demo",
        "run": "run",
        "atlas": "atlas",
        "report": "report",
    },
    "What there is": {
        "models": "models",
        "units": "units",
        "datasets": "datasets",
        "doctor": "doctor",
    },
    "Your own files": {
        "classify": "classify",
        "embed": "embed",
    },
    "Look inside": {
        "extract": "extract",
        "store": "store",
        "analyse": "analyse",
        "ablate": "ablate",
        "patch": "patch",
        "timemap": "timemap",
        "compare-runs": "compare_runs",
    },
    "Adapt": {
        "adapt": "adapt",
        "reweight": "reweight",
        "sweep": "sweep",
        "export": "export",
    },
    "Measure models": {
        "evaluate": "evaluate",
        "compa": "compa",
        "probe": "probe",
        "compare": "compare",
    },
    "Measure generated sound": {
        "fad": "fad",
        "music": "music",
        "mushra": "mushra",
    },
    "Train and time": {
        "train": "train",
        "bench": "bench",
    },
}
COMMANDS: dict[str, str] = {
    name: module for group in GROUPS.values() for name, module in group.items()
}
# other spellings, not shown in --help
ALIASES: dict[str, str] = {"analyze": "analyse"}


class _Root(Group):
    """Every command runs inside it: the one place that answers Ctrl-C."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of the table above, groups of commands among the others."""
        order = [*COMMANDS, *ALIASES]
        return sorted(super().list_commands(ctx), key=order.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, Exception) as error:
            if not _is_stop(error):
                raise
            typer.echo(terminal.farewell(), err=True)
            raise typer.Exit(130) from None


def _is_stop(error: BaseException | None) -> bool:
    """Ctrl-C, or what a library fell over while it cleaned up after it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        cls=_Root,
        name="residual-audio",
        help="Look inside CLAP audio encoders, reweight their heads, measure whether it helped.",
        epilog=epilog(""),
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for group, members in GROUPS.items():
        for name, module_name in members.items():
            module = import_module(f"residual_audio.cli.{module_name}")
            names = [name, *(alias for alias, target in ALIASES.items() if target == name)]
            for i, shown in enumerate(names):
                _add(app, module, shown, group, hidden=i > 0)
    return app


def _add(app: typer.Typer, module: ModuleType, name: str, group: str, hidden: bool) -> None:
    if not hasattr(module, "app"):
        command = app.command(name, hidden=hidden, rich_help_panel=group, epilog=epilog(name))
        command(module.run)
        return
    for one in module.app.registered_commands:
        one.epilog = epilog(f"{name} {one.name}")
    app.add_typer(module.app, name=name, hidden=hidden, rich_help_panel=group, epilog=epilog(name))


def _show_version(wanted: bool) -> None:
    if wanted:
        from residual_audio import __version__

        say(f"residual-audio {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version and exit.",
        is_eager=True,
        callback=_show_version,
    ),
) -> None:
    pass


def main() -> None:
    """Entry point: exit 0 done, 1 error, 2 usage, 3 done with clips skipped, 130 stopped."""
    try:
        build()()
    except BrokenPipeError:
        sys.exit(1)
    except ResidualAudioError as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"there is not enough memory: {error}".rstrip(": "))
    except OSError as error:  # a full disk, a folder that may not be written, too many open files
        where = f": '{error.filename}'" if error.filename else ""
        _fail(f"{error.strerror or error}{where}")


def _fail(message: str) -> None:
    say(f"error: {message}", err=True)
    sys.exit(1)
