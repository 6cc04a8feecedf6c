"""Scores over time with all units summed: cheap enough for every clip of a run.

The same sum as a `TimeMap`'s total, but what a stage writes to its tokens is added up before it is
read, so that one reading a stage serves all texts of a clip.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from residual_audio.direct.time_map import spread_evenly
from residual_audio.direct.token_path import TokenPath
from residual_audio.errors import ModelError
from residual_audio.models.encoder import Encoder
from residual_audio.models.token_times import time_steps
from residual_audio.types import FloatArray, Site


class StageSums:
    """A tap that adds up what each stage writes to its tokens, and keeps the scale of the norms."""

    points = frozenset({"stream", "out", "scale"})

    def __init__(self, first: Site) -> None:
        self._first = first
        self.written: dict[int, Tensor] = {}
        """Stage → [clip, token, width]."""
        self.scales: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site):
            self.scales[where] = value
        elif point == "out" or where == self._first:
            before = self.written.get(where.stage)
            self.written[where.stage] = value if before is None else before + value

    def of_clip(self, i: int) -> StageSums:
        """The same of one clip of the batch."""
        one = StageSums(self._first)
        one.written = {stage: value[i : i + 1] for stage, value in self.written.items()}
        one.scales = {norm: value[i : i + 1] for norm, value in self.scales.items()}
        return one


def totals_over_time(
    path: TokenPath, encoder: Encoder, sums: StageSums, toward: Tensor
) -> FloatArray:
    """[direction, finest time step]: what each moment of one clip adds along directions of the
    latent [direction, latent]; a coarser step is spread evenly over the finer ones inside it."""
    weights = path.weights(sums.scales)
    stages = []
    for stage, written in sums.written.items():
        entry = path.entry[stage]
        value = written if entry is None else written + entry
        along = path.along(stage, toward.T).transpose(1, 2)  # slot direction width
        parts = value[:, :, None].expand(-1, -1, len(toward), -1)
        tokens = path.read(stage, parts, weights, along)[0].double().cpu()  # token direction
        step, n_steps = time_steps(encoder, stage, len(tokens))
        timed = step.cpu() >= 0
        if bool((tokens[~timed] != 0).any()):
            raise ModelError("the latent is read from tokens that have no time (CLS)")
        found = torch.zeros(n_steps, len(toward), dtype=torch.float64)
        found.index_add_(0, step.cpu()[timed], tokens[timed])
        stages.append(found.T.numpy())
    n = max(found.shape[1] for found in stages)
    return np.sum([[spread_evenly(row, n) for row in found] for found in stages], axis=0)
