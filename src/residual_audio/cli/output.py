"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from residual_audio.table import Table


def say(text: str, err: bool = False) -> None:
    """Lines of text; names in them move no cursor, whoever chose them."""
    from residual_audio.files import harmless

    typer.echo(harmless(text, keep="\n"), err=err)


def print_json(value: object) -> None:
    """One JSON document on standard output; NaN and infinities become null."""
    from residual_audio.files import json_ready

    typer.echo(json.dumps(json_ready(value), indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """A table as wide as the terminal, or as it needs to be in a pipe."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table as Drawn

    from residual_audio.files import harmless

    table = Drawn(title=escape(title) or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(escape(column))
    for row in rows:
        table.add_row(*(escape(harmless(str(cell))) for cell in row))
    # without emoji: `hf:clap: …` would show clapping hands
    console = Console(width=None if sys.stdout.isatty() else 160, emoji=False)
    console.print(table)


def show_table(table: Table, columns: Sequence[str], limit: int | None = None) -> None:
    """Some columns of a table on the terminal."""
    rows = [[_cell(row.get(c)) for c in columns] for row in list(table.rows())[:limit]]
    print_table(columns, rows, table.caption)


def _cell(value: object) -> str:
    if isinstance(value, float):
        if value != value:
            return "–"
        return f"{value:.4f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)
