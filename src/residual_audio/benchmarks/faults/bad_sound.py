"""Mutated sound in a process with limits: no crash, no hang, no gigabyte, no other exception; and
nothing silently wrong where the container can tell."""

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
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.errors import ResidualAudioError
from residual_audio.files import shown

FORMATS = ("WAV", "FLAC", "OGG", "MP3", "AIFF", "AU", "CAF", "W64", "RF64")
RATE_HZ = 16_000
LONGEST_S = 20.0
MOST_BYTES = 2**30
MUTATIONS = 2000
CUT = 1
PROVED = (".flac", ".ogg")
"""Containers with checksums."""
_BATCH = 50


def mutate_sound(asked: CampaignSettings = STANDARD, n: int = MUTATIONS) -> list[Campaign]:
    """So many mutations of small files of each container, and files made by hand."""
    mutated = asked.campaign(
        "sound: mutated",
        "no mutation crashes, hangs beyond 20 s, takes more than 1 GB or raises anything but an "
        "error that names the file; cut files of every container, and FLAC and Ogg files however "
        "they were changed, are refused or heard as they were",
    )
    by_hand = asked.campaign("sound: hand-made", "read, or refused by an error that names the file")
    if not mutated.complete:
        _mutate(mutated, n)
    if not by_hand.complete:
        with tempfile.TemporaryDirectory() as folder:
            for path in write_all(Path(folder)):
                by_hand.attempt(lambda path=path: _tried([(path, None)])[0])  # type: ignore[misc]
        by_hand.end()
    return [mutated, by_hand]


def _mutate(campaign: Campaign, n: int) -> None:
    draw = np.random.default_rng(campaign.asked.seed)
    progress = campaign.asked.progress
    with tempfile.TemporaryDirectory() as folder:
        sources = [_write(Path(folder), kind) for kind in FORMATS]
        sources += written_by_av(Path(folder))
        progress.step("bad sound", n, "files")
        for first in range(0, n, _BATCH):
            paths: list[tuple[Path, Path | None]] = []
            for i in range(min(_BATCH, n - first)):
                source = sources[(first + i) % len(sources)]
                path = Path(folder) / f"mutated-{i}{source.suffix}"
                how, data = _mutated(source.read_bytes(), draw)
                path.write_bytes(data)
                tells = how == CUT or source.suffix in PROVED
                paths.append((path, source if tells else None))
            # of a batch that was tried before, the files were made again for the numbers' sake
            problems = _tried(paths) if first + len(paths) > campaign.next_case else [None] * _BATCH
            for problem in problems[: len(paths)]:
                campaign.attempt(lambda problem=problem: problem)  # type: ignore[misc]
            progress.advance(len(paths))
    campaign.end()


def written_by_av(folder: Path) -> list[Path]:
    """M4A, where the codecs are installed."""
    try:
        import av
    except ImportError:
        return []
    path = folder / "source.m4a"
    wave = (np.sin(np.arange(RATE_HZ) * 0.05) * 0.3).astype(np.float32)
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("aac", rate=RATE_HZ)
        stream.layout = "mono"  # type: ignore[union-attr, attr-defined]
        frame = av.AudioFrame.from_ndarray(wave[None], "fltp", "mono")
        frame.sample_rate = RATE_HZ
        for packet in (*stream.encode(frame), *stream.encode(None)):  # type: ignore[union-attr, attr-defined, arg-type]
            file.mux(packet)
    return [path]


def _write(folder: Path, kind: str) -> Path:
    path = folder / f"source.{kind.lower()}"
    noise = np.random.default_rng(0).normal(
        0, 0.05, RATE_HZ // 2
    )  # silence would hide what is lost
    wave = np.sin(np.arange(RATE_HZ // 2) * 0.05) * 0.3 + noise
    soundfile.write(path, wave, RATE_HZ, format=kind)
    return path


def _mutated(data: bytes, draw: np.random.Generator) -> tuple[int, bytes]:
    """One of: flipped bits, a cut, a hole, a doubled part, extreme values in the header; which."""
    changed = bytearray(data)
    how = int(draw.integers(5))
    at, end = sorted(int(i) for i in draw.integers(0, len(data), 2))
    if how == 0:
        for _ in range(int(draw.integers(1, 20))):
            changed[int(draw.integers(len(data)))] ^= 1 << int(draw.integers(8))
    elif how == CUT:
        del changed[at:]
    elif how == 2:
        del changed[at:end]
    elif how == 3:
        changed[at:at] = changed[at:end]
    else:
        header = int(draw.integers(0, min(200, len(data) - 8)))
        size = int(draw.choice([1, 2, 4, 8]))
        changed[header : header + size] = bytes([int(draw.choice([0, 0x7F, 0x80, 0xFF]))]) * size
    return how, bytes(changed)


def _tried(paths: list[tuple[Path, Path | None]]) -> list[str | None]:
    """Decode each in a child that may take so much memory; its time is watched from here. Beside a
    path, what it was made from where any change must be found."""
    reading, writing = Pipe(duplex=False)
    child = start(partial(_decode, paths, writing))
    writing.close()
    answers: list[str] = []
    with reading, suppress(EOFError):  # the child has ended
        while reading.poll(LONGEST_S):
            answers.append(reading.recv())
    ended(child, 0.5)
    found: list[str | None] = []
    for i, (path, _) in enumerate(paths):
        answer = answers[i] if i < len(answers) else "crashed or hung"
        if i > len(answers):
            answer = "not tried"
        found.append(None if answer == "ok" else f"{path.suffix}: {answer}")
    return found


def _decode(paths: list[tuple[Path, Path | None]], writing: Connection) -> None:
    """In the child: one answer a file, then the end."""
    there = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (there + MOST_BYTES,) * 2)
    for path, source in paths:
        try:
            wave = load_audio(path, RATE_HZ)
            answer = "ok" if np.isfinite(wave).all() and len(wave) else "not sound"
            if source is not None and not np.array_equal(wave, load_audio(source, RATE_HZ)):
                answer = "heard as something else"
        except ResidualAudioError as error:
            answer = (
                "ok" if shown(path.name)[:200] in str(error) else f"does not name the file: {error}"
            )
        except BaseException as error:
            answer = f"{type(error).__name__} {error}"
        writing.send(answer)
