"""What grows with the number of clips: memory and time of an extraction from tar shards, and the
clip index of a very large store."""

from __future__ import annotations

import io
import json
import math
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from residual_audio.benchmarks.large_store import LargeStore, bench_large_store
from residual_audio.benchmarks.small_model import SPEC, small_model
from residual_audio.data.packed_clips import ClipRows
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.models import native
from residual_audio.progress import SILENT, Progress
from residual_audio.store.clips import read_skipped, write_clips
from residual_audio.types import Clip

FLAT = 1.1
"""The largest run may need so many times the memory, and the time a clip, of the smallest."""
_MOST_A_TAR = 1000
_SOUNDS = 50
"""Different sounds; the rest repeats them."""


class TarRun(TypedDict):
    """One extraction in a process of its own."""

    clips: int
    peak_mb: float
    cpu_ms_per_clip: float
    index_s: float
    """Reading the headers of all archives."""


class IndexSize(TypedDict):
    """A clip index by itself."""

    clips: int
    held_mb: float
    write_s: float
    file_mb: float
    read_s: float


class TarGrowth(TypedDict, total=False):
    """What was measured of the parts that were asked for."""

    runs: list[TarRun]
    memory_growth: float
    time_growth: float
    flat: bool
    index: IndexSize
    store: LargeStore
    ray_two_over_one: float | None
    """Speed of two Ray workers over that of one once they work, from what more clips take longer;
    only on free cores does it mean anything."""


PARTS = ("tars", "index", "store")


@dataclass(frozen=True)
class GrowthSettings:
    """What is measured, and how large."""

    sizes: Sequence[int] = (1000, 10_000, 100_000)
    """Clips in tar shards, from few to many."""
    n_index: int = 1_000_000
    n_store: int = 1_000_000
    parts: Sequence[str] = ("tars", "index")
    ray: bool = False
    ray_address: str | None = None
    """A cluster that sees the folder for temporary files; None: one on this machine."""

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown:
            raise InputError(f"no part '{unknown[0]}': choose among {', '.join(PARTS)}")
        if list(self.sizes) != sorted(set(self.sizes)) or min(self.sizes, default=0) < 1:
            raise InputError("sizes go from few clips to many, each once: 1000,10000,100000")


def bench_growth(settings: GrowthSettings, progress: Progress = SILENT) -> TarGrowth:
    """The parts that are asked for, each in processes of their own, since a peak never falls."""
    found: TarGrowth = {}
    with tempfile.TemporaryDirectory() as folder:
        if "tars" in settings.parts:
            found = _tar_growth(settings, Path(folder), progress)
        if "index" in settings.parts:
            progress.step("clip index", settings.n_index)
            found["index"] = json.loads(_call("index", str(settings.n_index), folder))
        if "store" in settings.parts:
            progress.step("large store", settings.n_store)
            found["store"] = json.loads(_call("store", str(settings.n_store), folder))
    return found


def _tar_growth(settings: GrowthSettings, folder: Path, progress: Progress) -> TarGrowth:
    runs: list[TarRun] = []
    sizes = settings.sizes
    progress.step("extracting", len(sizes), "sizes")
    each = math.gcd(_MOST_A_TAR, *sizes)  # every size is a number of whole archives
    first = write_tars(folder, max(sizes), each)
    for n in sizes:
        runs.append(json.loads(_call("run", _pattern(first, n // each), str(folder))))
        progress.advance()
    ratio = None
    if settings.ray:
        few, more = sizes[0], sizes[-2] if len(sizes) > 2 else sizes[-1]
        ratio = _ray_ratio([_pattern(first, n // each) for n in (few, more)], folder, settings)
    memory = runs[-1]["peak_mb"] / runs[0]["peak_mb"]
    # the fixed part of a run (loading, first calls) weighs on a clip of a small one
    before = runs[-2] if len(runs) > 2 else runs[0]
    seconds = runs[-1]["cpu_ms_per_clip"] / before["cpu_ms_per_clip"]
    return {
        "runs": runs,
        "memory_growth": round(memory, 3),
        "time_growth": round(seconds, 3),
        "flat": memory <= FLAT and seconds <= FLAT,
        "ray_two_over_one": ratio,
    }


def write_tars(folder: Path, n_clips: int, each: int) -> Path:
    """Tar shards of so many short sounds each; the first of them."""
    import soundfile

    rng = np.random.default_rng(0)
    sounds = []
    for _ in range(_SOUNDS):
        buffer = io.BytesIO()
        wave = rng.normal(0, 0.1, SPEC.sample_rate_hz // 2)
        soundfile.write(buffer, wave, SPEC.sample_rate_hz, format="FLAC")
        sounds.append(buffer.getvalue())
    for number in range(n_clips // each):
        with tarfile.open(folder / f"part-{number:05d}.tar", "w") as tar:
            for i in range(number * each, (number + 1) * each):
                note = json.dumps({"label": f"class {i % 20}"}).encode()
                for suffix, data in (("flac", sounds[i % _SOUNDS]), ("json", note)):
                    member = tarfile.TarInfo(f"{i:08d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return folder / "part-00000.tar"


def _call(*arguments: str) -> str:
    call = [sys.executable, "-m", "residual_audio.benchmarks.tar_growth", *arguments]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True, timeout=7200).stdout


def _pattern(first: Path, n_tars: int) -> str:
    return str(first).replace("00000.tar", f"{{00000..{n_tars - 1:05d}}}.tar")


def _run(pattern: str, folder: str) -> TarRun:
    start = time.monotonic()
    data = load_dataset(f"wds:{pattern}", label="label")
    index_s = time.monotonic() - start
    with tempfile.TemporaryDirectory(dir=folder) as out:
        found = extract(small_model(), data, out, shard_size=500, batch_size=50, device="cpu")
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "clips": found.n_ok,
        "peak_mb": round(used.ru_maxrss / 1024, 1),
        "cpu_ms_per_clip": round(1000 * (used.ru_utime + used.ru_stime) / len(data), 3),
        "index_s": round(index_s, 2),
    }


def _index(n_clips: int, folder: str) -> IndexSize:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = ClipRows()
    for i in range(n_clips):
        rows.add(0, (i, 1), Clip(f"part-00000/{i:08d}", label=f"class {i % 20}", group=f"{i}"))
    clips = rows.clips([Path("part-00000.tar")])
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    path = Path(folder) / "clips.parquet"
    start = time.monotonic()
    write_clips(path, clips, [None] * n_clips)
    written = time.monotonic()
    read_skipped(path, path.read_bytes())
    return {
        "clips": n_clips,
        "held_mb": round(held / 1024, 1),
        "write_s": round(written - start, 2),
        "file_mb": round(path.stat().st_size / 1e6, 1),
        "read_s": round(time.monotonic() - written, 2),
    }


def _ray_ratio(patterns: Sequence[str], folder: Path, settings: GrowthSettings) -> float:
    """What one worker needs for more clips than for few, over what two need: the beginning of a
    cluster and of its workers is in both and is left out."""
    name = folder / "model"
    native.save(small_model(), name)
    longer = []
    for processes in (1, 2):
        seconds = []
        for pattern in patterns:
            data = load_dataset(f"wds:{pattern}", label="label")
            start = time.monotonic()
            with tempfile.TemporaryDirectory(dir=folder) as out:
                extract(
                    str(name), data, out, engine="ray", processes=processes, device="cpu",
                    ray_address=settings.ray_address,
                )  # fmt: skip
            seconds.append(time.monotonic() - start)
        longer.append(seconds[-1] - seconds[0] if len(set(patterns)) > 1 else seconds[-1])
    return round(longer[0] / longer[1], 2)


if __name__ == "__main__":
    task, size, place = sys.argv[1:]
    done: TarRun | IndexSize | LargeStore
    if task == "run":
        done = _run(size, place)
    elif task == "index":
        done = _index(int(size), place)
    else:
        done = bench_large_store(Path(place) / "large", int(size))
    print(json.dumps(done))
