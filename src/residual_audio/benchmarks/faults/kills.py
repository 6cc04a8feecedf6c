"""`kill -9` and SIGTERM at random times: one process or two, the parent or a worker."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from residual_audio.benchmarks.faults.children import ended, in_child, start
from residual_audio.benchmarks.faults.crashes import contents
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.benchmarks.small_model import small_model
from residual_audio.data.registry import load_dataset
from residual_audio.errors import EngineError
from residual_audio.extraction.extraction import extract
from residual_audio.store.verify import verify_store

N_CLIPS, SHARD = 24, 2
KILLS = {"one process": 60, "parent of two": 10, "worker of two": 10, "SIGTERM": 20}
"""A hundred in all."""
_GONE_S = 30.0
"""Workers whose parent is gone end within so many seconds."""


def kill_at_random(
    asked: CampaignSettings = STANDARD, kills: dict[str, int] | None = None
) -> list[Campaign]:
    """So many kills of each sort, each of an extraction of its own."""
    wanted = KILLS if kills is None else kills
    promise = "the extraction comes to the identical store, and no process stays"
    found = {name: asked.campaign(f"kill: {name}", promise) for name in wanted}
    if all(campaign.complete for campaign in found.values()):
        return list(found.values())
    draw = random.Random(asked.seed)
    asked.progress.step("kill", sum(wanted.values()), "kills")
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        in_child(_nothing)  # the server starts and imports before anything is timed
        whole, one_s = _timed(room / "whole", 1)
        _, two_s = _timed(room / "two", 2) if any("two" in n for n in wanted) else (whole, 0.0)
        for name, n in wanted.items():
            for i in range(n):
                after_s = draw.uniform(0.02, 0.95) * (two_s if "two" in name else one_s)
                out = room / f"{name} {i}"
                found[name].attempt(partial(_kill, name, out, after_s, whole))
                asked.progress.advance()
    return [campaign.end() for campaign in found.values()]


def _timed(out: Path, processes: int) -> tuple[dict[str, str], float]:
    begun = time.monotonic()
    if ended(start(partial(_extract, out, processes), daemon=False)):
        raise EngineError("the undisturbed extraction failed")
    return _store(out), time.monotonic() - begun


def _kill(name: str, out: Path, after_s: float, whole: dict[str, str]) -> str | None:
    child = start(partial(_extract, out, 2 if "two" in name else 1), daemon=False)
    assert child.pid is not None
    time.sleep(after_s)
    workers = _children(child.pid)
    if name == "worker of two":
        if workers:
            _end(workers[len(workers) // 2], signal.SIGKILL)
        code = ended(child)
        if code:
            return f"a worker was killed after {after_s:.2f} s, and the run ended with {code}"
    else:
        _end(child.pid, signal.SIGTERM if name == "SIGTERM" else signal.SIGKILL)
        ended(child)
    left = _still_there(workers)
    if left:
        return f"{len(left)} processes stay after {_GONE_S:.0f} s"
    before = _store(out)
    if in_child(partial(_extract, out, 1)):
        return f"killed after {after_s:.2f} s, the next start failed"
    after = _store(out)
    lost = [shard for shard, digest in before.items()
            if shard.startswith("shard-") and after.get(shard) != digest]  # fmt: skip
    if lost:
        return f"killed after {after_s:.2f} s: {lost[0]} was lost or changed"
    problems = verify_store(out)
    if problems:
        return problems[0]
    return None if after == whole else f"killed after {after_s:.2f} s: another store"


def _extract(out: Path, processes: int) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    data = load_dataset("synthetic", n_clips=N_CLIPS, duration_s=1.0)
    extract(small_model(), data, out, capture="all", shard_size=SHARD, batch_size=4, device="cpu",
            processes=processes)  # fmt: skip


def _store(out: Path) -> dict[str, str]:
    there = contents(out / "store") if (out / "store").is_dir() else {}
    return {name: digest for name, digest in there.items() if not name.startswith(".")}


def _children(pid: int) -> list[int]:
    """Workers of a process: those below it that are no trackers of resources."""
    found = []
    for task in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((task / "stat").read_text().rpartition(")")[2].split()[1])
            is_worker = b"spawn_main" in (task / "cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if parent == pid and is_worker:
            found.append(int(task.name))
    return sorted(found)


def _still_there(pids: list[int]) -> list[int]:
    end = time.monotonic() + _GONE_S
    while True:
        left = [pid for pid in pids if _runs(pid)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def _end(pid: int, how: signal.Signals) -> None:
    try:
        os.kill(pid, how)
    except ProcessLookupError:  # it had finished
        return


def _nothing() -> None:
    pass
