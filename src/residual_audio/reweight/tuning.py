"""Weights of the encoder trained themselves, all or some of them, and put back to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from residual_audio.models.encoder import Edit, Encoded, Encoder


class TunedWeights:
    """Parameters whose name `wanted` accepts are trained in place; `restore` puts them back."""

    first_block = 0
    """Nothing before it changes."""

    def __init__(self, part: nn.Module, wanted: Callable[[str], bool] = lambda name: True) -> None:
        self.parameters: list[Tensor] = [
            parameter
            for name, parameter in part.named_parameters()
            if parameter.is_floating_point() and wanted(name)
        ]
        self._kept = [p.detach().clone() for p in self.parameters]
        self._tracked = [p.requires_grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def edit(self) -> Edit:
        return {}

    def output(self, encoded: Encoded) -> Encoded:
        return encoded

    @torch.no_grad()
    def restore(self) -> None:
        for p, value, tracked in zip(self.parameters, self._kept, self._tracked, strict=True):
            p.requires_grad_(tracked)
            p.grad = None
            p.copy_(value)


def n_weights(encoder: Encoder) -> int:
    """Numbers of an encoder that training could change."""
    return sum(p.numel() for p in cast(nn.Module, encoder).parameters())
