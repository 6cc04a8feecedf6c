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
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from residual_audio import files
from residual_audio.benchmarks.faults.commands import extract_to, make_model, said
from residual_audio.benchmarks.faults.crashes import contents
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.small_disk import can_mount, sizes, too_small
from residual_audio.errors import EngineError
from residual_audio.files import cache_dir

ADDRESS_SPACE = 1_500_000_000
DESCRIPTORS = 64
LARGEST_FILES = (100, 1_000, 4_000, 10_000, 20_000)
DISKS = 24
"""Sizes of real disks that are too small, where the system lets us make one."""


def within_limits(asked: CampaignSettings = STANDARD, most: int | None = None) -> list[Campaign]:
    """One campaign a limit; with `most`, the disk is full at only so many writes."""
    promise = "one sentence and exit 1 at most; the next start comes to the identical files"
    small = "small disk"
    names = [*LIMITS, *([small] if can_mount() else [])]
    found = {name: asked.campaign(f"limits: {name}", promise) for name in names}
    if all(campaign.complete for campaign in found.values()):
        return list(found.values())
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        make_model(room)
        whole, n_moments = _undisturbed(room)
        moments = range(0, n_moments, 1 if most is None else max(1, -(-n_moments // most)))
        cases = {name: limit.ways(moments)[:most] for name, limit in LIMITS.items()}
        disks = sizes(room / "whole", DISKS if most is None else most)
        n_cases = sum(len(ways) for ways in cases.values()) + len(disks)
        asked.progress.step("limits", n_cases, "cases")
        for name, ways in cases.items():
            for i, way in enumerate(ways):
                out = room / f"{name} {i}".replace(" ", "-")
                found[name].attempt(partial(_judge, out, way, LIMITS[name].codes, whole))
                asked.progress.advance()
                shutil.rmtree(out, ignore_errors=True)
        for size in disks if small in found else ():
            found[small].attempt(partial(too_small, size, room / f"disk-of-{size}", whole))
            asked.progress.advance()
    return [campaign.end() for campaign in found.values()]


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

    _at(moment, partial(_fails, errno.ENOSPC, out))


def _read_only_at(moment: int, out: Path) -> None:
    """A disk that is mounted again read-only, as after an error of its own."""
    _at(moment, partial(_fails, errno.EROFS, out))


def _fails(number: int, where: Path) -> None:
    raise OSError(number, os.strerror(number), str(where))


def _full_cache(out: Path) -> None:
    """No room in the user's cache: nothing is kept there, nothing is lost."""
    cache = out.parent / "full-cache"
    os.environ["RESIDUAL_AUDIO_CACHE"] = str(cache)

    def watch(_: files.Moment, path: Path) -> None:
        if path.is_relative_to(cache_dir()):
            _fails(errno.ENOSPC, path)

    files.watch = watch


def _no_temporary(out: Path) -> None:
    """A temporary folder on a full disk: whoever asks for a file in it is refused."""
    tempfile.tempdir = "/dev/full"
    os.environ["TMPDIR"] = "/dev/full"


def _vanish_at(moment: int, out: Path) -> None:
    gone = False

    def vanish() -> None:
        nonlocal gone
        if not gone:
            gone = True
            shutil.rmtree(out, ignore_errors=True)

    _at(moment, vanish)


def _small_files(i: int, out: Path) -> None:
    """A write that fails in its middle."""
    largest = LARGEST_FILES[i % len(LARGEST_FILES)]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


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


Way = Callable[[Path], None]


@dataclass(frozen=True)
class Limit:
    """What is scarce, and how a command may end then."""

    codes: tuple[int, ...]
    once: Way | None = None
    at: Callable[[int, Path], None] | None = None
    """For limits that begin with a write."""
    every: int = 1
    only: int | None = None
    """So many ways, whatever the number of writes."""

    def ways(self, moments: range) -> list[Way]:
        if self.at is None:
            return [] if self.once is None else [self.once]
        chosen = moments[:: self.every] if self.only is None else range(self.only)
        return [partial(self.at, n) for n in chosen]


LIMITS = {
    "disk full": Limit((1,), at=_full_at),
    "read-only": Limit((1,), at=_read_only_at, every=2),
    "folder vanishes": Limit((0, 1), at=_vanish_at, every=2),
    "files cannot grow": Limit((1,), at=_small_files, only=len(LARGEST_FILES)),
    "full cache": Limit((0,), _full_cache),
    "no temporary folder": Limit((0, 1), _no_temporary),
    "64 descriptors": Limit((0, 1), _few_descriptors),
    "1.5 GB of address space": Limit((0, 1), _little_memory),
    "the clock jumps": Limit((0,), _clock_jumps),
}
