"""A batch's clips shared out: on a CPU every core has a few of them to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from residual_audio.engine.cores import CLIPS_A_JOB, on_single_cores
from residual_audio.models.encoder import Features


def on_cores(work: Callable[[Tensor, Features], None], clips: Tensor, features: Features) -> None:
    """`work` on clip numbers and their features, a few at a time on a CPU, else all at once."""
    tensors = features if isinstance(features, tuple) else (features,)
    if tensors[0].device.type != "cpu":
        work(clips, features)
        return
    size = max(1, min(CLIPS_A_JOB, len(clips) // torch.get_num_threads()))
    starts = range(0, len(clips), size)

    def take(numbers: Iterator[int]) -> None:
        for number in numbers:
            part = slice(starts[number], starts[number] + size)
            some = tuple(t[part] for t in tensors)
            work(clips[part], some if isinstance(features, tuple) else some[0])  # type: ignore[arg-type]

    on_single_cores(take, len(starts))
