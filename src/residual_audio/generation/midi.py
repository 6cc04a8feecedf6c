"""MIDI files as notes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError, MissingExtraError
from residual_audio.progress import SILENT, Progress

Array = npt.NDArray[Any]

SUFFIXES = (".mid", ".midi", ".kar")

MOST_BEATS = 16_384
"""Some hours of music; bars are compared with bars, which takes the square of their number."""
MOST_NOTES = 1_000_000


@dataclass(frozen=True)
class Pieces:
    """Notes of the readable files of a folder."""

    name: str
    files: tuple[str, ...]
    notes: tuple[Array, ...]
    skipped: Mapping[str, str]


def read_midi(path: Path) -> Array:
    """Notes [n, 3] of a file: onset and duration in beats, pitch; drums are left out."""
    try:
        import symusic
    except ImportError as error:
        raise MissingExtraError("symusic", "music", "Reading MIDI files") from error
    if not path.is_file():
        raise InputError(f"no MIDI file '{path}'")
    try:
        score: Any = symusic.Score(str(path))  # its types do not know the tracks
    except Exception as error:  # the parser raises whatever the damage leads to
        raise InputError(
            f"'{path}' cannot be read as MIDI: {error or type(error).__name__}"
        ) from error
    parts = [track.notes.numpy() for track in score.tracks if not track.is_drum]
    columns = ("time", "duration", "pitch")
    tables = [np.stack([part[name] for name in columns], axis=1) for part in parts]
    rows = np.concatenate([np.empty((0, 3)), *tables])
    if score.ticks_per_quarter <= 0:
        raise InputError(f"'{path}' cannot be read as MIDI: it has no ticks in a beat")
    rows[:, :2] /= score.ticks_per_quarter
    beats = float((rows[:, 0] + rows[:, 1]).max(initial=0.0))
    if beats > MOST_BEATS or rows.min(initial=0.0) < 0 or len(rows) > MOST_NOTES:
        raise InputError(
            f"'{path}' is no piece of music: {len(rows):,} notes over {beats:,.0f} beats; at most "
            f"{MOST_NOTES:,} and {MOST_BEATS:,} are read"
        )
    return rows[np.lexsort((rows[:, 2], rows[:, 0]))]


def read_folder(folder: Path, *, progress: Progress = SILENT) -> Pieces:
    """All MIDI files below a folder; unreadable ones and ones without notes are named."""
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder of MIDI files")
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not files:
        raise InputError(f"'{folder}' holds no MIDI file ({', '.join(SUFFIXES)})")
    progress.step(f"notes of {folder.name}", len(files), "files")
    names, notes, skipped = [], [], {}
    for path in files:
        name = str(path.relative_to(folder))
        try:
            found = read_midi(path)
            if len(found):
                names.append(name)
                notes.append(found)
            else:
                skipped[name] = "no pitched note"
        except InputError as error:
            skipped[name] = str(error)
        progress.advance()
    if not names:
        raise InputError(
            f"none of the {len(files)} MIDI files of '{folder}' has notes; the first: "
            f"{next(iter(skipped.values()))}"
        )
    return Pieces(folder.name, tuple(names), tuple(notes), skipped)
