"""Resident memory of an extraction over 100 to 10,000 synthetic clips: it should be flat.

    python benchmarks/memory.py [--clips 100,1000,10000] [--capture heads,direct,moments]

Each size runs in a process of its own. Prints one JSON object; exit code 1 if the largest run
needs over a tenth more than the smallest.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))


def one(n_clips: int, capture: str) -> dict:
    from tiny_model import tiny_model

    from residual_audio.data.registry import load_dataset
    from residual_audio.extraction.extraction import extract

    data = load_dataset("synthetic", n_clips=n_clips, duration_s=1.0)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = extract(tiny_model(), data, folder, capture=capture, shard_size=64, device="cpu")
        size = sum(path.stat().st_size for path in Path(folder, "store").iterdir())
    return {
        "clips": found.n_ok,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "store_mb": round(size / 1e6, 1),
        "clips_per_s": round(n_clips / (time.monotonic() - start), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", default="100,1000,10000")
    parser.add_argument("--capture", default="heads,direct,moments")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.capture)))
        return
    runs = []
    for n in given.clips.split(","):
        command = [sys.executable, __file__, "--one", n, "--capture", given.capture]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    growth = runs[-1]["peak_mb"] / runs[0]["peak_mb"]
    print(json.dumps({"runs": runs, "growth": round(growth, 3)}, indent=1))
    sys.exit(0 if growth < 1.1 else 1)


if __name__ == "__main__":
    main()
