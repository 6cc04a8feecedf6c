"""Flip bits and cut files of every kind that is read back: the error names the file."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np

from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.benchmarks.faults.works import WORKS, Work
from residual_audio.errors import ResidualAudioError
from residual_audio.progress import SILENT, Progress

KINDS = ("extract", "reweight", "convert")
"""Work whose files carry digests; tables and results are text that people may edit."""


def damage_files(
    flips: int = 300, cuts: int = 50, seed: int = 0, progress: Progress = SILENT
) -> list[Campaign]:
    """So many single-bit flips and truncations over the files of each kind of work."""
    found = []
    for work in (work for work in WORKS if work.name in KINDS):
        campaign = Campaign(
            f"damage: {work.name}",
            "a flipped bit or a cut anywhere is an error that names the file when it is read",
        )
        with tempfile.TemporaryDirectory() as folder:
            _damage(work, Path(folder), campaign, (flips, cuts, seed), progress)
        found.append(campaign)
    return found


def _damage(
    work: Work,
    folder: Path,
    campaign: Campaign,
    how: tuple[int, int, int],
    progress: Progress,
) -> None:
    flips, cuts, seed = how
    draw = np.random.default_rng(seed)
    out = folder / "out"
    out.mkdir()
    work.write(out)
    work.read(out)
    # a card is for people: nothing reads it back
    paths = [p for p in sorted(out.rglob("*")) if p.is_file() and not _is_card(work, p)]
    progress.step(f"damage {work.name}", flips + cuts, "files")
    for i in range(flips + cuts):
        path = paths[i % len(paths)]
        data = path.read_bytes()
        at = int(draw.integers(len(data)))
        if i < flips:
            changed = data[:at] + bytes([data[at] ^ 1 << int(draw.integers(8))]) + data[at + 1 :]
        else:
            changed = data[:at]
        path.write_bytes(changed)
        campaign.count(_judge(work, out, path, at))
        path.write_bytes(data)
        progress.advance()
    shutil.rmtree(out)


def _is_card(work: Work, path: Path) -> bool:
    return work.name == "reweight" and path.suffix == ".json"


def _judge(work: Work, out: Path, path: Path, at: int) -> str | None:
    try:
        work.read(out)
    except ResidualAudioError as error:
        named = path.name in str(error) or path.stem.split(".")[0] in str(error)
        return None if named else f"byte {at} of {path.name}: said '{error}'"
    except Exception as error:
        return f"byte {at} of {path.name}: {type(error).__name__} {error}"
    return f"byte {at} of {path.name}: read without a word"
