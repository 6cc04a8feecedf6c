"""Kinds that are means over tokens: heads, blocks, stages."""

from __future__ import annotations

from torch import Tensor

from residual_audio.capture.kind import Kind
from residual_audio.types import Site


class Heads(Kind):
    """Raw head outputs, before W_O: mean(H W) = mean(H) W, so nothing wider is ever kept."""

    points = frozenset({"raw"})

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        self.found[f"heads/{where}"] = self.pooled(value)


class Blocks(Kind):
    """Stream entering each block, and what its attention and its MLP add."""

    points = frozenset({"stream", "out"})

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        assert isinstance(where, Site)
        part = "stream" if point == "stream" else where.kind
        self.found[f"blocks/s{where.stage}.b{where.block}/{part}"] = self.pooled(value)


class Stages(Kind):
    """Stream at the end of each stage, before merging."""

    points = frozenset({"end"})

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        self.found[f"stages/s{where}"] = self.pooled(value)
