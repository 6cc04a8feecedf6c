"""What capturing costs over the plain forward pass, at HTS-AT tiny size, batch 8.

Kinds take turns, so that all see the same machine; times are processor seconds (on one thread,
other programs do not count), and the cost is the median over rounds of the ratio to the plain
pass of the same round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import TypedDict

import torch

from residual_audio.capture.capture_settings import CaptureSettings, SamplePlan
from residual_audio.capture.recorder import Recorder
from residual_audio.models.registry import load_model
from residual_audio.progress import SILENT, Progress

KINDS = ("heads", "direct", "heads,direct", "blocks,stages", "moments", "tokens", "attention")


class CaptureCost(TypedDict):
    """Seconds of the plain pass, and the share that each kind adds to it."""

    forward_s_per_clip: float
    cost: dict[str, float]


def bench_capture(
    rounds: int = 12, threads: int = 1, kinds: Sequence[str] = KINDS, progress: Progress = SILENT
) -> CaptureCost:
    """Cost of each of `kinds`, which may name several with commas."""
    torch.set_num_threads(threads)
    model = load_model("htsat-tiny-random", "cpu")
    features = torch.randn(8, 1001, 64, generator=torch.Generator().manual_seed(0)) * 20 - 40
    plain = Recorder(model.encoder, SamplePlan(1000, CaptureSettings.of("embedding")))
    recorders = {
        kind: Recorder(model.encoder, SamplePlan(1000, CaptureSettings.of(kind))) for kind in kinds
    }

    def seconds(recorder: Recorder) -> float:
        start = time.process_time()
        recorder.run(features, model.joint)
        return time.process_time() - start

    for recorder in (plain, *recorders.values()):
        seconds(recorder)
    base: list[float] = []
    cost: dict[str, list[float]] = {kind: [] for kind in recorders}
    progress.step("measuring", rounds, "rounds")
    for _ in range(rounds):
        for kind, recorder in recorders.items():
            before = seconds(plain)
            cost[kind].append(seconds(recorder) / before - 1)
            base.append(before)
        progress.advance()
    return {
        "forward_s_per_clip": round(statistics.median(base) / 8, 4),
        "cost": {kind: round(statistics.median(found), 3) for kind, found in cost.items()},
    }
