"""Mean and scatter of each head over tokens, in float64; batches and shards merge exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from residual_audio.capture.kind import Kind
from residual_audio.types import Site


class TokenMoments(Kind):
    """Count, mean and centred scatter of one batch; `metrics.moments` merges them."""

    points = frozenset({"raw"})

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        assert isinstance(where, Site)
        # on the CPU: some accelerators have no float64
        tokens = value.flatten(0, 1) if self.heard is None else value[self.heard]
        x = tokens.to("cpu", torch.float64).transpose(0, 1)  # head token d_head
        mean = x.mean(1)
        centred = x - mean[:, None]
        self.found[f"moments/{where}/n"] = torch.tensor(x.shape[1])
        self.found[f"moments/{where}/mean"] = mean
        self.found[f"moments/{where}/scatter"] = centred.transpose(1, 2) @ centred
