"""Kill an extraction with SIGKILL at random moments, resume, and compare with an undisturbed one.

A server that has everything imported forks a child for each attempt, so that a kill hits the work
and not the imports.
"""

from __future__ import annotations

import hashlib
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from residual_audio.benchmarks.faults.children import ended, in_child, start
from residual_audio.benchmarks.small_model import small_model
from residual_audio.data.registry import load_dataset
from residual_audio.errors import EngineError
from residual_audio.extraction.extraction import extract
from residual_audio.progress import SILENT, Progress
from residual_audio.store.verify import verify_store

N_CLIPS, SHARD = 96, 8


@dataclass(frozen=True)
class Survived:
    """What the kills did to the store."""

    kills: int
    finished_early: int
    seconds_undisturbed: float
    identical: bool
    shards_lost: int
    shards_changed: int
    problems: list[str]

    @property
    def whole(self) -> bool:
        return self.identical and not (self.problems or self.shards_lost or self.shards_changed)


def bench_kill(kills: int = 30, seed: int = 0, progress: Progress = SILENT) -> Survived:
    """So many kills of one extraction, then its end, against one that was left alone."""
    in_child(_nothing)  # the server starts and imports before anything is timed
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, broken = Path(folder, "whole"), Path(folder, "broken")
        begun = time.monotonic()
        if in_child(partial(_extract, whole)):
            raise EngineError("the undisturbed extraction failed")
        duration_s = time.monotonic() - begun
        done, lost, changed, restarts = 0, 0, 0, 0
        seen: dict[str, str] = {}
        progress.step("killing", kills, "kills")
        while done < kills:
            child = start(partial(_extract, broken))
            time.sleep(draw.uniform(0.02, 0.35 * duration_s))
            child.kill()
            if ended(child) != -signal.SIGKILL:  # finished before the kill: start another one
                restarts += 1
                for path in (broken / "store").iterdir():
                    path.unlink()
                seen = {}
                continue
            done += 1
            progress.advance()
            now = _shards(broken) if (broken / "store").is_dir() else {}
            # a shard once there is never written again, and never differently
            lost += sum(name not in now for name in seen)
            changed += sum(name in now and now[name] != seen[name] for name in seen)
            seen = now
        status = in_child(partial(_extract, broken))
        identical = status == 0 and _shards(whole) == _shards(broken)
        problems = verify_store(broken)
    seconds = round(duration_s, 2)
    return Survived(done, restarts, seconds, identical, lost, changed, problems)


def _nothing() -> None:
    pass


def _extract(out: Path) -> None:
    torch.set_num_threads(1)
    data = load_dataset("synthetic", n_clips=N_CLIPS, duration_s=1.0)
    extract(small_model(), data, out, capture="all", shard_size=SHARD, batch_size=4, device="cpu")


def _shards(out: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((out / "store").glob("*"))
        if path.suffix == ".safetensors" or path.name in ("clips.parquet", "texts.json")
    }
