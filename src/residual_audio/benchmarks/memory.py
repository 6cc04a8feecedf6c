"""Resident memory of an extraction over more and more synthetic clips: it should be flat."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from residual_audio.benchmarks.small_model import small_model
from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.progress import SILENT, Progress

FLAT = 1.1
"""The largest run may need so many times the memory of the smallest."""


class Peak(TypedDict):
    """One extraction in a process of its own."""

    clips: int
    peak_mb: float
    store_mb: float
    clips_per_s: float


def bench_memory(sizes: Sequence[int], capture: str, progress: Progress = SILENT) -> list[Peak]:
    """Each size in a process of its own, since a peak never falls."""
    found: list[Peak] = []
    progress.step("extracting", len(sizes), "sizes")
    for n in sizes:
        call = [sys.executable, "-m", "residual_audio.benchmarks.memory", str(n), capture]
        done = subprocess.run(call, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
        progress.advance()
    return found


def growth(found: Sequence[Peak]) -> float:
    """Memory of the largest over that of the smallest."""
    return found[-1]["peak_mb"] / found[0]["peak_mb"]


def _one(n_clips: int, capture: str) -> Peak:
    data = load_dataset("synthetic", n_clips=n_clips, duration_s=1.0)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = extract(small_model(), data, folder, capture=capture, shard_size=64, device="cpu")
        size = sum(path.stat().st_size for path in Path(folder, "store").iterdir())
    return {
        "clips": found.n_ok,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "store_mb": round(size / 1e6, 1),
        "clips_per_s": round(n_clips / (time.monotonic() - start), 1),
    }


if __name__ == "__main__":
    print(json.dumps(_one(int(sys.argv[1]), sys.argv[2])))
