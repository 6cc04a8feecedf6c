"""The disk is full at one write after the other, of all works: an error that is a sentence, nothing
half-written, and with room again the next start comes to the identical files."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.crashes import NAME, chosen_moments, contents
from residual_audio.benchmarks.faults.grounds import stand_on
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.faults.works import Work
from residual_audio.errors import EngineError, ResidualAudioError

_NO_SENTENCE = 9


def full_disk(
    work: Work, asked: CampaignSettings = STANDARD, most: int | None = None
) -> list[Campaign]:
    """One case a file that the work writes; with `most`, so many of them."""
    campaign = asked.campaign(
        f"full disk: {work.name}",
        "at any write one sentence at most; what was finished stays, no temporary file is left, "
        "and with room again the next start comes to the identical files",
    )
    if campaign.complete:
        return [campaign]
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        ground = stand_on(work.starts_from, room / "ground")
        whole = Path(shutil.copytree(ground, room / "whole" / NAME))
        if in_child(partial(_count, work, whole, room / "n")):
            raise EngineError(f"the undisturbed {work.name} failed")
        wanted, n = contents(whole), json.loads((room / "n").read_text())
        chosen = chosen_moments(n, most)
        asked.progress.step(campaign.name, len(chosen), "writes")
        for i in chosen:
            out = room / str(i) / NAME
            campaign.attempt(partial(_try, work, ground, out, i, wanted))
            shutil.rmtree(out.parent, ignore_errors=True)
            asked.progress.advance()
    return [campaign.end()]


def _try(work: Work, ground: Path, out: Path, write: int, wanted: dict[str, str]) -> str | None:
    shutil.copytree(ground, out)
    code = in_child(partial(_until_full, work, out, write))
    where = f"full at write {write} of {work.name}"
    if code not in (0, 1):
        return f"{where}: ended with {code}"
    left = [name for name in contents(out) if files.is_temporary(name)]
    if left:
        return f"{where}: {left[0]} stays"
    if work.may_refuse and (out / work.may_refuse).exists():
        shutil.rmtree(out / work.may_refuse)
    if in_child(partial(work.write, out)):
        return f"{where}: the next start failed"
    found = contents(out)
    differ = sorted(n for n in {*found, *wanted} if found.get(n) != wanted.get(n))
    return f"{where}: {', '.join(differ[:3])} differ from an undisturbed run" if differ else None


def _count(work: Work, out: Path, counted: Path) -> None:
    n = 0

    def watch(moment: files.Moment, path: Path) -> None:
        nonlocal n
        n += moment == "written"

    files.watch = watch
    work.write(out)
    counted.write_text(json.dumps(n))


def _until_full(work: Work, out: Path, write: int) -> None:
    """From that write on, every one fails."""
    n = 0

    def watch(moment: files.Moment, path: Path) -> None:
        nonlocal n
        if moment == "written":
            n += 1
            if n > write:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    files.watch = watch
    try:
        work.write(out)
    except (OSError, ResidualAudioError):  # what a command makes a sentence of
        sys.exit(1)
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        sys.exit(_NO_SENTENCE)
