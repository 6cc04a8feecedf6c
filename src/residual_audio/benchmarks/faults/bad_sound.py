"""Mutated sound in a process with limits: no crash, no hang, no gigabyte, no other exception."""

from __future__ import annotations

import os
import resource
import tempfile
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import soundfile

from residual_audio.audio.decode import load_audio
from residual_audio.benchmarks.faults.children import ended, start
from residual_audio.benchmarks.faults.hand_made import write_all
from residual_audio.benchmarks.faults.outcome import Campaign
from residual_audio.errors import ResidualAudioError
from residual_audio.files import shown
from residual_audio.progress import SILENT, Progress

FORMATS = ("WAV", "FLAC", "OGG", "MP3", "AIFF", "AU", "CAF", "W64", "RF64")
RATE_HZ = 16_000
LONGEST_S = 20.0
MOST_BYTES = 2**30
_BATCH = 50


def mutate_sound(n: int = 2000, seed: int = 0, progress: Progress = SILENT) -> list[Campaign]:
    """So many mutations of small files of each container."""
    campaign = Campaign(
        "bad sound",
        "no mutation crashes, hangs beyond 20 s, takes more than 1 GB or raises anything but an "
        "error that names the file",
    )
    draw = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        sources = [_write(Path(folder), kind) for kind in FORMATS]
        progress.step("bad sound", n, "files")
        for first in range(0, n, _BATCH):
            size = min(_BATCH, n - first)
            paths = []
            for i in range(size):
                source = sources[(first + i) % len(sources)]
                path = Path(folder) / f"mutated-{i}{source.suffix}"
                path.write_bytes(_mutated(source.read_bytes(), draw))
                paths.append(path)
            _try(paths, campaign)
            progress.advance(size)
    return [campaign, _hand_made()]


def _hand_made() -> Campaign:
    campaign = Campaign("hand-made sound", "read, or refused by an error that names the file")
    with tempfile.TemporaryDirectory() as folder:
        for path in write_all(Path(folder)):
            _try([path], campaign)
    return campaign


def _write(folder: Path, kind: str) -> Path:
    path = folder / f"source.{kind.lower()}"
    wave = np.sin(np.arange(RATE_HZ // 2) * 0.05) * 0.3
    soundfile.write(path, wave, RATE_HZ, format=kind)
    return path


def _mutated(data: bytes, draw: np.random.Generator) -> bytes:
    """One of: flipped bits, a cut, a hole, a doubled part, extreme values in the header."""
    changed = bytearray(data)
    how = int(draw.integers(5))
    at, end = sorted(int(i) for i in draw.integers(0, len(data), 2))
    if how == 0:
        for _ in range(int(draw.integers(1, 20))):
            changed[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
    elif how == 1:
        del changed[at:]
    elif how == 2:
        del changed[at:end]
    elif how == 3:
        changed[at:at] = changed[at:end]
    else:
        header = int(draw.integers(0, min(200, len(data) - 8)))
        size = int(draw.choice([1, 2, 4, 8]))
        changed[header : header + size] = bytes([int(draw.choice([0, 0x7F, 0x80, 0xFF]))]) * size
    return bytes(changed)


def _try(paths: list[Path], campaign: Campaign) -> None:
    """Decode each in a child that may take so much memory; its time is watched from here."""
    reading, writing = Pipe(duplex=False)
    child = start(partial(_decode, paths, writing))
    writing.close()
    answers: list[str] = []
    with reading, suppress(EOFError):  # the child has ended
        while reading.poll(LONGEST_S):
            answers.append(reading.recv())
    ended(child, 0.5)
    for i, path in enumerate(paths):
        if i < len(answers):
            campaign.count(None if answers[i] == "ok" else f"{path.suffix}: {answers[i]}")
        else:
            campaign.count(
                f"{path.suffix}: {'crashed or hung' if i == len(answers) else 'not tried'}"
            )


def _decode(paths: list[Path], writing: Connection) -> None:
    """In the child: one answer a file, then the end."""
    there = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (there + MOST_BYTES,) * 2)
    for path in paths:
        try:
            wave = load_audio(path, RATE_HZ)
            answer = "ok" if np.isfinite(wave).all() and len(wave) else "not sound"
        except ResidualAudioError as error:
            answer = (
                "ok" if shown(path.name)[:200] in str(error) else f"does not name the file: {error}"
            )
        except BaseException as error:
            answer = f"{type(error).__name__} {error}"
        writing.send(answer)
