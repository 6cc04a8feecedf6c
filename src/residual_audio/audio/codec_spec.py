"""How a model that hears through a neural codec turns a waveform into what its encoder reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from residual_audio.errors import InputError


@dataclass(frozen=True)
class CodecSpec:
    """Sizes of a DAC encoder: convolutions that thin out time and double the channels."""

    width: int
    """Channels after the first convolution."""
    strides: tuple[int, ...]
    """By how much each block thins out time."""
    hidden: int
    """Channels after the last convolution."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "strides", tuple(self.strides))  # a list, out of JSON
        sizes = (self.width, self.hidden, *self.strides)
        if not self.strides or len(self.strides) > 16 or min(sizes) < 1:
            raise InputError(f"codec: {self} is no row of convolutions")

    @property
    def hop_length(self) -> int:
        """Samples a frame."""
        return math.prod(self.strides)
