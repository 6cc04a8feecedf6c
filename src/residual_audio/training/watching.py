"""Progress of a training run: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from residual_audio.training.training_loop import Listener

EVERY_S = 60.0
"""Seconds between lines where there is no terminal."""


@contextmanager
def watching(quiet: bool) -> Iterator[Listener]:
    """Who hears about progress on this terminal."""
    if quiet:
        yield Listener()
    elif sys.stderr.isatty():
        with _bar() as listener:
            yield listener
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Listener]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps, loss {task.fields[loss]:.3f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars: dict[int, int] = {}

        def report(step: int, steps: int, numbers: dict[str, float]) -> None:
            if steps not in bars:
                bars[steps] = progress.add_task("", total=steps, loss=0.0)
            progress.update(bars[steps], completed=step, loss=numbers["loss"])  # type: ignore[arg-type]

        yield Listener(console.print, report)


def _lines() -> Listener:
    begun = last = time.monotonic()
    first: int | None = None

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def report(step: int, steps: int, numbers: dict[str, float]) -> None:
        nonlocal begun, last, first
        now = time.monotonic()
        if first is None or step < first:
            begun, first = now, step
        if now - last < EVERY_S and step != steps:
            return
        last = now
        left = (now - begun) / max(1, step - first) * (steps - step)
        say(f"step {step}/{steps}  loss {numbers['loss']:.4f}  {left / 60:.1f} min left")

    return Listener(say, report)
