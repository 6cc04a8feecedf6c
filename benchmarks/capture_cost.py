"""What capturing costs over the plain forward pass, at HTS-AT tiny size, batch 8.

    python benchmarks/capture_cost.py [--rounds 12] [--threads 1]

Kinds take turns, so that all see the same machine; times are processor seconds (on one thread,
other programs do not count), and the cost is the median over rounds of the ratio to the plain
pass of the same round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from residual_audio.capture.recorder import Recorder
from residual_audio.capture.settings import CaptureSettings, SamplePlan
from residual_audio.models.registry import load_model

KINDS = ("heads", "direct", "heads,direct", "blocks,stages", "moments", "tokens", "attention")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kinds", default=" ".join(KINDS))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    model = load_model("htsat-tiny-random", "cpu")
    features = torch.randn(8, 1001, 64, generator=torch.Generator().manual_seed(0)) * 20 - 40
    plain = Recorder(model.encoder, SamplePlan(1000, CaptureSettings.of("embedding")))
    recorders = {
        kinds: Recorder(model.encoder, SamplePlan(1000, CaptureSettings.of(kinds)))
        for kinds in given.kinds.split()
    }

    def seconds(recorder: Recorder) -> float:
        start = time.process_time()
        recorder.run(features, model.joint)
        return time.process_time() - start

    for recorder in (plain, *recorders.values()):
        seconds(recorder)
    base: list[float] = []
    cost: dict[str, list[float]] = {kinds: [] for kinds in recorders}
    for _ in range(given.rounds):
        for kinds, recorder in recorders.items():
            before = seconds(plain)
            cost[kinds].append(seconds(recorder) / before - 1)
            base.append(before)
    print(
        json.dumps(
            {
                "forward_s_per_clip": round(statistics.median(base) / 8, 4),
                "cost": {
                    kinds: round(statistics.median(found), 3) for kinds, found in cost.items()
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
