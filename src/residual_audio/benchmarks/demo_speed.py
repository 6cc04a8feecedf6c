"""The demo as a user calls it, in a process of its own, by step."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TypedDict

from residual_audio.errors import EngineError
from residual_audio.progress import SILENT, Progress

_STEP = re.compile(r"^(\w+) +([\d.]+) s · ", re.MULTILINE)


class DemoSpeed(TypedDict):
    """From the call to the end, start of the interpreter included."""

    n_clips: int
    seconds: float
    steps: dict[str, float]
    """Seconds of the steps after extraction; `report` draws the figures of the page."""


def bench_demo(n_clips: int, progress: Progress = SILENT) -> DemoSpeed:
    """Everything anew, in a folder that is not kept."""
    progress.step("demo", 1, "runs")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "residual_audio", "demo", "--clips", str(n_clips)]
        start = time.monotonic()
        done = subprocess.run(
            [*command, "--out", str(Path(folder) / "demo")], capture_output=True, text=True
        )
        seconds = time.monotonic() - start
    if done.returncode:
        raise EngineError(f"the demo ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return {
        "n_clips": n_clips,
        "seconds": round(seconds, 1),
        "steps": step_seconds(done.stderr),
    }


def step_seconds(said: str) -> dict[str, float]:
    """Step → seconds, from the lines that a run says."""
    return {name: float(took) for name, took in _STEP.findall(said)}
