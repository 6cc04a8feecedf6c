"""One command in a child, with something wrong around it: what it said, how it ended."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from residual_audio.benchmarks.faults.children import ended, start
from residual_audio.benchmarks.faults.grounds import stand_on
from residual_audio.benchmarks.faults.works import CLASSES, MODEL, trained

DATA = ("-d", "synthetic", "--data-option", "n_clips=4", "--data-option", f"classes={CLASSES}")


def make_model(room: Path) -> None:
    """Of two stages, with a text side; trained once in a process."""
    stand_on((trained,), room / "trained")
    (room / "trained" / MODEL).rename(room / MODEL)


def extract_to(out: Path) -> list[str]:
    """A real extraction of two shards; the model lies beside the folder."""
    model = str(out.parent / MODEL)
    return ["extract", "-m", model, *DATA, "--shard-size", "2", "--quiet", "--out", str(out)]


@dataclass(frozen=True)
class Said:
    """How a command ended: its exit code, or the negative number of a signal."""

    code: int
    text: str

    def trouble(self, codes: tuple[int, ...]) -> str | None:
        """None where it ended as it should: such a code, and one sentence instead of a traceback
        where that is not 0."""
        if self.code not in codes:
            return f"exit {self.code}: {self.text[-300:]}"
        if "Traceback" in self.text:
            return f"a traceback: {self.text[-300:]}"
        if self.code == 1 and not 1 <= len(self.text.strip().splitlines()) <= 3:
            return f"not one sentence: {self.text[:300]!r}"
        return None


def begin(
    arguments: list[str], said_in: Path, around: Callable[[], None] | None = None
) -> ForkServerProcess:
    """Start `residual-audio …` in a child, after `around` has made it worse."""
    return start(partial(run_command, arguments, said_in, around))


def end_of(child: ForkServerProcess, said_in: Path) -> Said:
    code = ended(child)
    return Said(code, said_in.read_text(errors="replace") if said_in.is_file() else "")


def said(arguments: list[str], said_in: Path, around: Callable[[], None] | None = None) -> Said:
    return end_of(begin(arguments, said_in, around), said_in)


def run_command(arguments: list[str], said_in: Path, around: Callable[[], None] | None) -> None:
    """In this process, which says into a file from now on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with said_in.open("wb") as file:
        os.dup2(file.fileno(), 2)
        os.dup2(file.fileno(), 1)
    sys.argv = ["residual-audio", *arguments]
    if around is not None:
        around()
    runpy.run_module("residual_audio", run_name="__main__")
