"""Flip bits and cut files of every kind that is read back: an error that names it, or no harm."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.benchmarks.faults.grounds import stand_on
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.read_back import KINDS, FileKind
from residual_audio.errors import ResidualAudioError
from residual_audio.seals import SUMS

FLIPS, CUTS = 300, 50


def damage_files(
    asked: CampaignSettings = STANDARD,
    flips: int = FLIPS,
    cuts: int = CUTS,
    kinds: Sequence[FileKind] = KINDS,
) -> list[Campaign]:
    """So many single-bit flips and truncations over the files of each kind."""
    found = []
    for kind in kinds:
        campaign = asked.campaign(
            f"damage: {kind.name}",
            "a flipped bit or a cut anywhere is an error that names the file when it is read, or "
            "what is read is the same",
        )
        if not campaign.complete:
            with tempfile.TemporaryDirectory() as folder:
                _damage(kind, Path(folder) / "out", campaign, flips, cuts)
        found.append(campaign)
    return found


def _damage(kind: FileKind, out: Path, campaign: Campaign, flips: int, cuts: int) -> None:
    stand_on(kind.makes, out)
    logging.disable(logging.WARNING)  # of a cache that is not used, each time
    try:
        whole = kind.read(out)
        draw = np.random.default_rng(campaign.asked.seed)
        there = {p for pattern in kind.files for p in out.glob(pattern) if p.is_file()}
        paths = sorted(path for path in there if path.stat().st_size)
        progress = campaign.asked.progress
        progress.step(f"damage {kind.name}", flips + cuts, "files")
        for i in range(flips + cuts):
            path = paths[i % len(paths)]
            place, bit = float(draw.random()), int(draw.integers(8))
            change = partial(flipped, bit=bit) if i < flips else cut
            campaign.attempt(partial(_try, kind, out, path, partial(change, place=place), whole))
            progress.advance()
    finally:
        logging.disable(logging.NOTSET)
    campaign.end()


def flipped(data: bytes, place: float, bit: int) -> bytes:
    at = int(place * len(data))
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def cut(data: bytes, place: float) -> bytes:
    return data[: int(place * len(data))]


def _try(kind: FileKind, out: Path, path: Path, change: Any, whole: Any) -> str | None:
    data, times = path.read_bytes(), path.stat()
    path.write_bytes(change(data))
    try:
        return _judge(kind, out, path, whole)
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _judge(kind: FileKind, out: Path, path: Path, whole: object) -> str | None:
    where = f"{path.relative_to(out)} of {kind.name}"
    try:
        found = kind.read(out)
    except ResidualAudioError as error:
        said = str(error)
        # a list of digests that is damaged says so by what it lists
        named = path.name in said or path.stem.split(".")[0] in said or path.name == SUMS
        return None if named else f"{where}: said '{error}'"
    except Exception as error:
        return f"{where}: {type(error).__name__} {error}"
    return None if found == whole or _healed(found, whole) else f"{where}: read as something else"


def _healed(found: Any, whole: Any) -> bool:
    """A damaged record of steps is none: the steps are done again, the rest is as it was."""
    is_run = isinstance(found, tuple) and found[-1:] == ("done again",)
    return is_run and bool(found[:-1] == whole[:-1])
