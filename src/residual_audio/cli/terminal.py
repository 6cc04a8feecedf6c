"""The one line that long work shows, and the one sentence that it ends with when it is stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from residual_audio.progress import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

EVERY_S = 15.0
"""Seconds between lines where there is no terminal."""

WHOLE = "every finished file is kept whole; the same command starts again"


class Watched(Progress):
    """Draws nothing, but remembers what would be kept."""

    def __init__(self) -> None:
        self.kept = WHOLE

    def keeps(self, sentence: str) -> None:
        self.kept = sentence


class Lines(Watched):
    """A plain line now and then, for logs."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.unit, self.said, self.done = "", "", "", 0
        self.total: int | None = None
        self.begun = self.last = time.monotonic()

    def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
        self.name, self.total, self.unit, self.said, self.done = name, total, unit, "", 0
        self.begun = time.monotonic()
        self._now_and_then()

    def advance(self, n: int = 1, said: str = "") -> None:
        self.done += n
        self.said = said
        self._now_and_then()

    def note(self, line: str) -> None:
        typer.echo(line, err=True)

    def _now_and_then(self) -> None:
        now = time.monotonic()
        if now - self.last >= EVERY_S:
            self.last = now
            typer.echo(self.line(now - self.begun), err=True)

    def line(self, seconds: float) -> str:
        """`extract: 128 of 2,000 clips, 12.8/s, 2.4 min left`."""
        if not self.done:
            return f"{self.name} …"
        rate = self.done / max(seconds, 1e-9)
        of = f" of {self.total:,}" if self.total else ""
        left = f", {(self.total - self.done) / rate / 60:.1f} min left" if self.total else ""
        said = f", {self.said}" if self.said else ""
        return f"{self.name}: {self.done:,}{of} {self.unit}, {rate:.3g}/s{left}{said}"


class Line(Watched):
    """One line on a terminal that is drawn again and again: step, n of N, rate, time left."""

    def __init__(self, bar: Bar) -> None:
        super().__init__()
        self.bar = bar
        self.task: TaskID | None = None

    def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(name, total=total, unit=unit, said="")

    def advance(self, n: int = 1, said: str = "") -> None:
        if self.task is not None:
            self.bar.update(self.task, advance=n, said=said)

    def note(self, line: str) -> None:
        self.bar.console.print(line, markup=False, highlight=False)


_watched = Watched()


@contextmanager
def watching(quiet: bool = False) -> Iterator[Progress]:
    """What a command hands to the work it calls."""
    global _watched
    if quiet:
        _watched = Watched()
        yield _watched
    elif sys.stderr.isatty():
        with _bar() as bar:
            _watched = Line(bar)
            yield _watched
    else:
        _watched = Lines()
        yield _watched


def farewell() -> str:
    """What is said when the user stops the work."""
    return f"stopped: {_watched.kept}"


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar
    from rich.text import Text

    class Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_count(task))

    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        Counted(),
        TimeRemainingColumn(),
    )
    return Bar(*columns, console=Console(stderr=True), transient=True)


def _count(task: Any) -> str:
    """`65 of 205 clips, 12.3/s`; nothing where nobody counts."""
    if not task.completed and task.total is None:
        return ""
    of = f" of {int(task.total):,}" if task.total is not None else ""
    rate = f", {task.speed:.3g}/s" if task.speed else ""
    said = f", {task.fields['said']}" if task.fields["said"] else ""
    return f"{int(task.completed):,}{of} {task.fields['unit']}{rate}{said}"
