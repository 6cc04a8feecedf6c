"""Kill an extraction with SIGKILL at random moments, resume, and compare with an uninterrupted one.

    python benchmarks/kill.py [--kills 30]

One parent imports everything and forks a child for each attempt, so that a kill hits the work and
not the imports. Prints one JSON object; exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

N_CLIPS, SHARD = 96, 8


def attempt(out: Path) -> int:
    """Extract in a child; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        import torch
        from tiny_model import tiny_model

        from residual_audio.data.registry import load_dataset
        from residual_audio.extraction.extraction import extract

        torch.set_num_threads(1)
        data = load_dataset("synthetic", n_clips=N_CLIPS, duration_s=1.0)
        extract(
            tiny_model(), data, out, capture="all", shard_size=SHARD, batch_size=4, device="cpu"
        )
        code = 0
    finally:
        os._exit(code)


def shards(out: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((out / "store").glob("*"))
        if path.suffix == ".safetensors" or path.name in ("clips.parquet", "texts.json")
    }


def run(kills: int, seed: int = 0) -> dict:
    from residual_audio.store.verify import verify_store

    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder, "whole"), Path(folder, "broken")
        start = time.monotonic()
        _, status = os.waitpid(attempt(whole), 0)
        duration_s = time.monotonic() - start
        if status:
            raise SystemExit("the uninterrupted extraction failed")
        done, lost, redone, restarts = 0, 0, 0, 0
        seen: dict[str, str] = {}
        while done < kills:
            child = attempt(broken)
            time.sleep(draw.uniform(0.02, 0.35 * duration_s))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFEXITED(status):  # it was finished before the kill: start another one
                restarts += 1
                for path in (broken / "store").iterdir():
                    path.unlink()
                seen = {}
                continue
            done += 1
            now = shards(broken) if (broken / "store").is_dir() else {}
            # a shard once there is never written again, and never differently
            lost += sum(name not in now for name in seen)
            redone += sum(name in now and now[name] != seen[name] for name in seen)
            seen = now
        _, status = os.waitpid(attempt(broken), 0)
        return {
            "kills": done,
            "finished_early": restarts,
            "seconds_uninterrupted": round(duration_s, 2),
            "identical": status == 0 and shards(whole) == shards(broken),
            "shards_lost": lost,
            "shards_changed": redone,
            "problems": verify_store(broken),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    # imported before the forks; nothing is computed here, so there are no threads to lose
    import tiny_model  # noqa: F401

    import residual_audio.data.synthetic
    import residual_audio.extraction.extraction  # noqa: F401

    found = run(given.kills, given.seed)
    print(json.dumps(found, indent=1))
    good = found["identical"] and not found["problems"] and not found["shards_lost"]
    sys.exit(0 if good and not found["shards_changed"] else 1)


if __name__ == "__main__":
    main()
