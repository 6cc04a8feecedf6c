"""No space, no descriptors, no memory, a folder that vanishes, a clock that jumps: one sentence,
exit 1, and what was finished is kept."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from residual_audio import files
from residual_audio.benchmarks.faults.commands import extract_to, said
from residual_audio.benchmarks.faults.crashes import contents
from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.errors import EngineError
from residual_audio.progress import SILENT, Progress

ADDRESS_SPACE = 1_500_000_000
DESCRIPTORS = 64
LARGEST_FILE = 20_000


def within_limits(most: int | None = None, progress: Progress = SILENT) -> list[Campaign]:
    """One campaign a limit; with `most`, the disk is full at only so many writes."""
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        whole, n_moments = _undisturbed(room)
        step = 1 if most is None else max(1, -(-n_moments // most))
        moments = range(0, n_moments, step)
        cases: list[tuple[str, list[Callable[[Path], None]], tuple[int, ...]]] = [
            ("disk full", [partial(_full_at, n) for n in moments], (1,)),
            ("folder vanishes", [partial(_vanish_at, n) for n in moments[1::2]], (0, 1)),
            ("files cannot grow", [_small_files], (1,)),
            ("64 descriptors", [_few_descriptors], (0, 1)),
            ("1.5 GB of address space", [_little_memory], (0, 1)),
            ("the clock jumps", [_clock_jumps], (0,)),
        ]
        progress.step("limits", sum(len(ways) for _, ways, _ in cases), "cases")
        found = []
        for name, ways, codes in cases:
            promise = "one sentence and exit 1 at most; the next start comes to the identical files"
            campaign = Campaign(f"limits: {name}", promise)
            for i, way in enumerate(ways):
                out = room / f"{name} {i}".replace(" ", "-")
                campaign.count(_judge(out, way, codes, whole))
                progress.advance()
                shutil.rmtree(out, ignore_errors=True)
            found.append(campaign)
    return found


def _undisturbed(room: Path) -> tuple[dict[str, str], int]:
    """What an extraction writes, and at how many moments it could be disturbed."""
    out, counted = room / "whole", room / "moments"
    done = said(extract_to(out), room / "said", partial(_count, counted))
    if done.code:
        raise EngineError(f"the undisturbed extraction failed: {done.text[-300:]}")
    return contents(out), len(counted.read_bytes())


def _judge(
    out: Path, way: Callable[[Path], None], codes: tuple[int, ...], whole: dict[str, str]
) -> str | None:
    said_in = out.with_suffix(".said")
    trouble = said(extract_to(out), said_in, partial(way, out)).trouble(codes)
    if trouble:
        return f"{out.name}: {trouble}"
    left = [name for name in contents(out) if files.is_temporary(name)]
    if left:
        return f"{out.name}: {left[0]} stays"
    again = said(extract_to(out), said_in)
    trouble = again.trouble((0, 1) if isinstance(way, partial) and way.func is _vanish_at else (0,))
    if trouble or again.code:  # of a folder that lost its beginning, it says so
        return f"{out.name}: the next start: {trouble}" if trouble else None
    return None if contents(out) == whole else f"{out.name}: other files than undisturbed"


def _count(counted: Path) -> None:
    def watch(moment: files.Moment, path: Path) -> None:
        with counted.open("ab") as file:
            file.write(b".")

    files.watch = watch


def _at(moment: int, happens: Callable[[], None]) -> None:
    n = 0

    def watch(_: files.Moment, path: Path) -> None:
        nonlocal n
        n += 1
        if n > moment:
            happens()

    files.watch = watch


def _full_at(moment: int, out: Path) -> None:
    """From then on every write fails, as on a full disk."""

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out))

    _at(moment, full)


def _vanish_at(moment: int, out: Path) -> None:
    gone = False

    def vanish() -> None:
        nonlocal gone
        if not gone:
            gone = True
            shutil.rmtree(out, ignore_errors=True)

    _at(moment, vanish)


def _small_files(out: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))


def _few_descriptors(out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


def _little_memory(out: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def _clock_jumps(out: Path) -> None:
    """Hours back and forth at every look."""
    real, n = time.time, 0

    def jumping() -> float:
        nonlocal n
        n += 1
        return real() + (7200.0 if n % 2 else -7200.0)

    time.time = jumping
