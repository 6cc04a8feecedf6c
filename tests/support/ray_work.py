"""What the tests let Ray workers do; they import it by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from residual_audio.data.base import Dataset, Wave
from residual_audio.data.registry import load_dataset
from residual_audio.errors import AudioError, StoreError
from residual_audio.types import Clip

SLEEPS = 100
"""A task that takes a minute."""


def nothing() -> None:
    """A setup."""


def no_set_up() -> None:
    raise StoreError("there is nothing to begin with")


def work(state: None, task: int) -> int:
    """Doubles; 3 fails, 5 takes its worker along."""
    if task == 3:
        raise StoreError("task 3 cannot be done")
    if task == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == SLEEPS:
        time.sleep(60)
    return 2 * task


class Sounds:
    """Sounds of a data set; the first time somebody asks for one of them, its process dies."""

    def __init__(self, deadly: str, mark: Path, broken: str = "") -> None:
        self.deadly, self.mark, self.broken = deadly, mark, broken
        self.dataset: Dataset | None = None

    def __call__(self, clip: Clip, sample_rate_hz: int) -> Wave:
        if clip.id == self.deadly and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if clip.id == self.broken:
            raise AudioError(f"'{clip.id}' cannot be heard")
        self.dataset = self.dataset or load_dataset("synthetic", n_clips=22, duration_s=1.0)
        assert self.dataset.make is not None
        return self.dataset.make(clip, sample_rate_hz)
