"""Sound files made by hand to hurt: sizes that lie, rates and channels without sense, things that
are no files at all."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import soundfile

Named = tuple[str, bytes]


def write_all(folder: Path) -> list[Path]:
    """All of them below a folder; their paths."""
    paths = []
    for name, data in (*_lying_wavs(), *_odd_values(), *_headers_alone(), *_archives()):
        path = folder / name
        path.write_bytes(data)
        paths.append(path)
    return [*paths, *_no_files(folder)]


def _wav(
    rate: int = 16_000,
    channels: int = 1,
    bits: int = 16,
    kind: int = 1,
    data: bytes = b"\0\1" * 4000,
    says: int | None = None,
) -> bytes:
    size = len(data) if says is None else says
    width = max(1, channels * bits // 8) % 2**16
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * width % 2**32, width, bits)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", size % 2**32) + data
    return b"RIFF" + struct.pack("<I", (len(body) if says is None else says) % 2**32) + body


def _lying_wavs() -> Iterator[Named]:
    for rate in (0, 1, 7, 99, 1_000_000, 2**31, 2**32 - 1):
        yield f"rate-{rate}.wav", _wav(rate=rate)
    for channels in (0, 9, 255, 1000, 65_535):
        yield f"channels-{channels}.wav", _wav(channels=channels)
    for bits in (0, 1, 7, 24, 33, 64, 65_535):
        yield f"bits-{bits}.wav", _wav(bits=bits)
    for kind in (0, 2, 3, 6, 7, 0x55, 0xFFFE, 0xFFFF):
        yield f"format-{kind}.wav", _wav(kind=kind)
    for says in (0, 1, 2**30, 2**31 - 1, 2**31, 2**32 - 9):
        yield f"says-{says}.wav", _wav(says=says)
    yield "empty.wav", _wav(data=b"")
    yield "odd.wav", _wav(data=b"\1\2\3")
    yield "chunks.wav", _wav()[:12] + (b"JUNK" + struct.pack("<I", 0)) * 50_000 + _wav()[12:]


def _odd_values() -> Iterator[Named]:
    for name, value in (
        ("nan", np.nan),
        ("inf", np.inf),
        ("huge", 1e38),
        ("denormal", 1e-42),
        ("tiny", 1e-300),
    ):
        samples = np.full(4000, value)
        kind, subtype = ("<f8", 64) if name == "tiny" else ("<f4", 32)
        yield f"{name}.wav", _wav(bits=subtype, kind=3, data=samples.astype(kind).tobytes())


def _headers_alone() -> Iterator[Named]:
    wave = np.sin(np.arange(4000) * 0.05) * 0.3
    for kind in ("FLAC", "OGG", "MP3", "AIFF", "CAF", "W64", "AU"):
        made = io.BytesIO()
        soundfile.write(made, wave, 16_000, format=kind)
        yield f"head-{kind.lower()}.{kind.lower()}", made.getvalue()[:64]
        yield f"twice-{kind.lower()}.wav", made.getvalue() * 2
    for kind in ("ffconcat version 1.0\nfile nan.wav\n", "#EXTM3U\n#EXTINF:1.0,\nnan.wav\n"):
        yield f"list-{len(kind)}.m3u8", kind.encode()
    yield "mp4.m4a", b"\0\0\0\x20ftypM4A " + b"\0" * 16 + b"\xff\xff\xff\xffmoov"
    yield "deep.m4a", b"\0\0\0\x10ftypM4A \0\0\0\0" + b"\0\0\1\0moov" * 5000


def _archives() -> Iterator[Named]:
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.wav", b"\0" * 10_000_000)
    yield "bomb.wav", bomb.getvalue()
    yield "gzip.flac", gzip.compress(b"\0" * 10_000_000)
    yield "text.mp3", b"not sound at all\n" * 1000
    yield "zeros.ogg", b"\0" * 100_000
    yield "nothing.flac", b""


def _no_files(folder: Path) -> list[Path]:
    """A folder, a pipe, devices, links to them, loops, names that are hard to write."""
    made: list[Path] = []

    def make(name: str | bytes, how: Callable[[Path], object]) -> None:
        path = folder / os.fsdecode(name)
        try:
            how(path)
        except OSError:  # this file system cannot have such a thing
            return
        made.append(path)

    make("folder.wav", lambda path: path.mkdir())
    make("pipe.wav", lambda path: os.mkfifo(path))
    make("zero.wav", lambda path: path.symlink_to("/dev/zero"))
    make("random.wav", lambda path: path.symlink_to("/dev/urandom"))
    make("null.wav", lambda path: path.symlink_to("/dev/null"))
    make("loop.wav", lambda path: path.symlink_to(path))
    make("nowhere.wav", lambda path: path.symlink_to(folder / "not there"))
    make(b"not-\xff\xfe-utf8.wav", lambda path: path.write_bytes(_wav()))
    make("ü" * 100 + ".wav", lambda path: path.write_bytes(_wav()))
    make("line\nbreak.wav", lambda path: path.write_bytes(_wav()))
    made.append(folder / ("x" * 5000) / "long.wav")
    return made
