"""How far long work is: one object that all of it takes, and one line that people see of it.

Work says which step begins and how much it holds, how much of it is done, and what would be kept if
the user stopped now. This class listens and says nothing; the command line has one that draws.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Progress:
    """Silent: the default of every function that works long."""

    def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
        """A new step begins; `total` is how many of `unit` it holds, None where nobody knows."""

    def advance(self, n: int = 1, said: str = "") -> None:
        """So many more of the current step are done; `said` is shown beside the count."""

    def note(self, line: str) -> None:
        """A line for people that stays on the screen: what a step found, or why it was left out."""

    def keeps(self, sentence: str) -> None:
        """What is kept, and how to go on, if the work is stopped from now on."""


SILENT = Progress()


@contextmanager
def stopping_when_whole() -> Iterator[list[int]]:
    """Ctrl-C, or an end that the system asks for, is noted here and answered by the caller when
    what it is writing is whole: it raises `KeyboardInterrupt`, as Ctrl-C would have."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda number, _: asked.append(number)) for kind in kinds]
    try:
        yield asked
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
