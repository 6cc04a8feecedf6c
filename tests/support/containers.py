"""Tar shards of small sounds, as WebDataset lays them out."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import soundfile

RATE_HZ = 8000


def wave(i: int) -> np.ndarray:
    return np.random.default_rng(i).uniform(-0.5, 0.5, 400 + i).astype(np.float32)


def sound(i: int, kind: str = "WAV") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, wave(i), RATE_HZ, format=kind)
    return buffer.getvalue()


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def write_tars(folder: Path, n: int = 10, each: int = 4) -> str:
    for shard in range(-(-n // each)):
        with tarfile.open(folder / f"set-{shard:03d}.tar", "w") as tar:
            for i in range(shard * each, min(n, (shard + 1) * each)):
                kind = ("WAV", "FLAC", "OGG", "MP3")[i % 4]
                note = {"category": f"class_{i % 3}", "text": [f"sound {i}"], "source": i // 2}
                add(tar, f"./{i:04d}.json", json.dumps(note).encode())
                add(tar, f"./{i:04d}.{kind.lower()}", sound(i, kind))
    return str(folder / f"set-{{000..{-(-n // each) - 1:03d}}}.tar")
