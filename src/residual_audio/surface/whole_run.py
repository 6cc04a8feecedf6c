"""All of it in one go: what `residual-audio run` and `demo` carry out."""

from __future__ import annotations

from dataclasses import replace

from residual_audio.engine.jobs import available_cores
from residual_audio.pipeline.run import Finished
from residual_audio.pipeline.run import run as run_steps
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.run_settings import demo_settings as demo_settings
from residual_audio.progress import SILENT, Progress

DRAWING = 4
"""Processes that draw figures, at most: each begins by loading matplotlib."""


def run_all(settings: RunSettings, progress: Progress = SILENT) -> Finished:
    """Extract → analyse → ablate → reweight → evaluate → report → atlas; every step resumes."""
    processes = min(DRAWING, available_cores())
    return run_steps(replace(settings, processes=processes), progress)
