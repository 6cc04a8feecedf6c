"""Folders of generated sound and of MIDI files, small and known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
import symusic
from evaluation_fakes import D


def sounds(folder: Path, n: int, seed: int, windows: int = 2, shift: float = 0.0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(n):
        wave = 0.1 * rng.normal(size=windows * D) + shift
        soundfile.write(folder / f"{i:03d}.wav", wave.astype(np.float32), 1000, subtype="FLOAT")
    return folder


def write_midi(path: Path, pitches: list[int], step_s: float = 0.5, tempo: float = 120.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    score = symusic.Score(480)
    score.tempos.append(symusic.Tempo(0, tempo))
    piano, drums = symusic.Track("piano", 0, False), symusic.Track("drums", 0, True)
    step = round(step_s * 480 * tempo / 60)  # ticks
    for i, pitch in enumerate(pitches):
        piano.notes.append(symusic.Note(i * step, step, pitch, 80))
        drums.notes.append(symusic.Note(i * step, step // 2, 36, 80))
    score.tracks.extend([piano, drums])
    score.dump_midi(str(path))
    return path
