"""The whole job by step: `run` at the real tiny size, where the encoder should take longest."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any, TypedDict

from residual_audio.errors import InputError
from residual_audio.files import read_json_object, write_json
from residual_audio.pipeline.run import run
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.progress import SILENT, Progress

RECORD = "bench-run.json"
ENCODER = "extract"


class StepTime(TypedDict):
    """One step of a run."""

    seconds: float
    cpu_s: float
    """Of this process and those it began."""


class RunSpeed(TypedDict):
    """A whole run."""

    model: str
    n_clips: int
    steps: dict[str, StepTime]
    left_out: dict[str, str]
    """Step → why the model or the data do not allow it."""
    slowest: str
    """The step that takes longest besides the encoder …"""
    slowest_over_encoder: float
    """… and its processor time over the encoder's."""
    encoder_leads: bool


class _Watch(Progress):
    """Writes down when each step ends; all else goes on to whoever looks."""

    def __init__(self, path: Path, shown: Progress) -> None:
        self._path, self._shown = path, shown
        self.steps: dict[str, StepTime] = read_json_object(path) if path.is_file() else {}
        self._wall, self._cpu = time.perf_counter(), _cpu_s()

    def note(self, line: str) -> None:
        self._shown.note(line)
        name = line.split()[0]
        wall, cpu = time.perf_counter(), _cpu_s()
        # a step that was there already was timed when it was made
        if "up to date" not in line or name not in self.steps:
            took: StepTime = {
                "seconds": round(wall - self._wall, 2),
                "cpu_s": round(cpu - self._cpu, 2),
            }
            self.steps[name] = took
            write_json(self._path, self.steps)
        self._wall, self._cpu = wall, cpu

    def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
        self._shown.step(name, total, unit)

    def advance(self, n: int = 1, said: str = "") -> None:
        self._shown.advance(n, said)


def bench_run(
    model: str, n_clips: int, out: Path, seed: int = 0, progress: Progress = SILENT
) -> RunSpeed:
    """Every step of `run` on synthetic clips, below `out`; what is there already is not done again,
    and its time is the one it took."""
    settings = RunSettings(
        model, "synthetic", out, data_options={"n_clips": n_clips, "duration_s": 10.0}, seed=seed
    )
    out.mkdir(parents=True, exist_ok=True)
    asked: dict[str, Any] = {"model": model, "n_clips": n_clips, "seed": seed}
    _check(out / "bench-asked.json", asked)
    watch = _Watch(out / RECORD, progress)
    found = run(settings, watch)
    others = {
        name: took["cpu_s"]
        for name, took in watch.steps.items()
        if name != ENCODER and name not in found.left_out
    }
    slowest = max(others, key=lambda name: others[name])
    ratio = others[slowest] / watch.steps[ENCODER]["cpu_s"]
    return {
        "model": model,
        "n_clips": found.n_clips,
        "steps": watch.steps,
        "left_out": found.left_out,
        "slowest": slowest,
        "slowest_over_encoder": round(ratio, 3),
        "encoder_leads": ratio <= 1,
    }


def _check(path: Path, asked: dict[str, Any]) -> None:
    if path.is_file() and read_json_object(path) != asked:
        raise InputError(f"'{path.parent}' was measured with other settings: give another folder")
    write_json(path, asked)


def _cpu_s() -> float:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, both))
