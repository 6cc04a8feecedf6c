"""A kind of capture: names the points it taps and gives arrays for one batch of clips."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from residual_audio.types import Site


class Kind(ABC):
    """Fills `found` while the encoder runs; one row a clip, unless the name says otherwise."""

    points: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}
        self.clips: list[int] = []
        """Place in the run of each clip of the batch."""
        self.heard: Tensor | None = None
        """[clip, token] where the encoder pools over tokens that hear something alone."""

    def begin(self, clips: list[int]) -> None:
        self.clips = clips
        self.found = {}
        self.heard = None

    def pooled(self, value: Tensor) -> Tensor:
        """[clip, token, …] → the mean over tokens that the encoder's own pool takes."""
        if self.heard is None:
            return value.mean(1)
        weight = self.heard.to(value.dtype)
        weight = weight / weight.sum(1, keepdim=True)
        return (value * weight.view(*weight.shape, *[1] * (value.ndim - 2))).sum(1)

    @abstractmethod
    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        """A value at one of the points."""

    def finish(self) -> dict[str, Tensor]:
        """What the batch gave, and nothing of it kept."""
        found, self.found = self.found, {}
        return found
