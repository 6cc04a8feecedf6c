"""Folders of generated sound and of MIDI files, small and known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
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
    pretty_midi = pytest.importorskip("pretty_midi")
    midi = pretty_midi.PrettyMIDI(initial_tempo=tempo, resolution=480)
    piano, drums = pretty_midi.Instrument(0), pretty_midi.Instrument(0, is_drum=True)
    for i, pitch in enumerate(pitches):
        piano.notes.append(pretty_midi.Note(80, pitch, i * step_s, (i + 1) * step_s))
        drums.notes.append(pretty_midi.Note(80, 36, i * step_s, (i + 0.5) * step_s))
    midi.instruments += [piano, drums]
    midi.write(str(path))
    return path
