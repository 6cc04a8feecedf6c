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

    def begin(self, clips: list[int]) -> None:
        self.clips = clips
        self.found = {}

    @abstractmethod
    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        """A value at one of the points."""

    def finish(self) -> dict[str, Tensor]:
        """What the batch gave, and nothing of it kept."""
        found, self.found = self.found, {}
        return found
