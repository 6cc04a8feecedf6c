"""The encoder's products and attention alone, at the shapes in which it makes them: what everything
around them (norms, windows, capture, front-end, decoding, memory) could at best come down to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import nn

from residual_audio.engine.cores import CLIPS_A_JOB, on_single_cores
from residual_audio.models.block import TOKENS_AT_ONCE, scaled_attention
from residual_audio.models.encoder import Encoder
from residual_audio.models.htsat import HTSAT, Merge, SwinBlock
from residual_audio.models.linear import linear


def kernels_alone(encoder: Encoder, repeats: int) -> float:
    """Best seconds a clip of so many repeats, every core at work on a job of its own."""
    assert isinstance(encoder, HTSAT)
    steps = [step for stage in range(len(encoder.stages)) for step in _steps(encoder, stage)]
    n_cores = torch.get_num_threads()

    def work(jobs: Iterator[int]) -> None:
        for _ in jobs:
            for step in steps:
                step()

    best = float("inf")
    with torch.inference_mode():
        for _ in range(repeats + 1):
            start = time.perf_counter()
            on_single_cores(work, n_cores)
            best = min(best, time.perf_counter() - start)
    return best / (n_cores * CLIPS_A_JOB)


def _steps(encoder: HTSAT, stage: int) -> list[Callable[[], object]]:
    """What one job does in a stage, on values that are there already."""
    config = encoder.config
    n_tokens, width = config.grid(stage) ** 2, config.width(stage)
    stream = torch.randn(CLIPS_A_JOB * n_tokens, width)
    steps: list[Callable[[], object]] = []
    for block in cast(nn.ModuleList, encoder.stages[stage]):
        steps += _of_block(cast(SwinBlock, block), stream)
    if stage + 1 < len(config.depths):
        merge, merged = cast(Merge, encoder.merges[stage]), stream.view(-1, 4 * width)
        steps.append(lambda: linear(merge.reduction, merged))
    return steps


def _of_block(block: SwinBlock, stream: torch.Tensor) -> list[Callable[[], object]]:
    m = block.window * block.window
    shape = (-1, m, 3, block.n_heads, block.d_head)
    bias = block.attention_bias(CLIPS_A_JOB)

    def attention() -> None:
        q, k, v = linear(block.qkv, stream).view(shape).permute(2, 0, 3, 1, 4)
        raw, _ = scaled_attention(q, k, v, bias, maps=False)
        linear(block.proj, raw.transpose(1, 2).reshape(stream.shape), add=stream)

    def mlp() -> None:
        for part in stream.split(TOKENS_AT_ONCE):
            linear(block.fc2, linear(block.fc1, part, gelu=True, widen=False), add=part)

    return [attention, mlp]
