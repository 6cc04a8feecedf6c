"""What commands print: tables for people, JSON for programs, progress on a terminal only."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import typer


class Advance(Protocol):
    """Tell the bar that `n` more are done."""

    def __call__(self, n: int = 1) -> None: ...


def print_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinities become null."""
    from residual_audio.files import json_ready

    typer.echo(json.dumps(json_ready(value), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """A table as wide as the terminal, or as it needs to be in a pipe."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title) or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(escape(column))
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)


@contextmanager
def progress(label: str, total: int | None, quiet: bool = False) -> Iterator[Advance]:
    """A bar with rate and time left on a terminal; nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda n=1: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "–/s")

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda n=1: bar.advance(task, n)
