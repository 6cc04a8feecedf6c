"""Where the tokens of a ViT are, which of them make the latent, and how: its direct path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.direct_path import StageSteps

Pool = Literal["patches", "special", "stack", "sounding"]
"""`patches`: mean over patch tokens (M2D, Whisper). `special`: mean over CLS and distillation
tokens (AST). `stack`: mean over time, frequency rows side by side (M2D's stacked features).
`sounding`: mean over the positions that hear something (Whisper, on request)."""


@dataclass(frozen=True)
class TokenLayout:
    """Chunk after chunk, each its special tokens and then its patches, frequency-major.

    All chunks are full but the last, which may have fewer columns: a token count says it all.
    """

    n_special: int
    rows: int
    """Patches along frequency."""
    columns: int
    """Patches along time in a full chunk."""

    @property
    def full(self) -> int:
        """Tokens of a full chunk."""
        return self.n_special + self.rows * self.columns

    def chunks(self, n_tokens: int) -> list[int]:
        """Tokens of each chunk."""
        n_full, rest = divmod(n_tokens, self.full)
        patches = rest - self.n_special
        if n_tokens < 1 or (rest and (patches < self.rows or patches % self.rows)):
            raise InputError(
                f"{n_tokens} tokens are not chunks of {self.n_special} special tokens and "
                f"{self.rows} × at most {self.columns} patches"
            )
        return [self.full] * n_full + ([rest] if rest else [])

    def special(self, x: Tensor) -> Tensor:
        """[clip, token, …] → special tokens of all chunks."""
        return torch.cat([c[:, : self.n_special] for c in x.split(self.chunks(x.shape[1]), 1)], 1)

    def patches(self, x: Tensor) -> Tensor:
        """[clip, token, …] → patch tokens of all chunks, in stream order."""
        parts = [c[:, self.n_special :] for c in x.split(self.chunks(x.shape[1]), 1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def grid(self, x: Tensor) -> Tensor:
        """[clip, token, …] → [clip, time, row, …], chunks one after the other in time."""
        parts = [
            c[:, self.n_special :].unflatten(1, (self.rows, -1)).transpose(1, 2)
            for c in x.split(self.chunks(x.shape[1]), 1)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def pooled(self, x: Tensor, pool: Pool) -> Tensor:
        """[clip, token, …] → [clip, instance, slot, …]: the latent is the mean over instances."""
        if pool == "stack":
            return self.grid(x)
        return (self.special(x) if pool == "special" else self.patches(x)).unsqueeze(2)

    def places(self, n_tokens: int) -> Tensor:
        """[token, 2] time and frequency step of each token; −1 for a special token."""
        found, start = [torch.empty(0, 2, dtype=torch.int64)], 0
        for size in self.chunks(n_tokens):
            columns = (size - self.n_special) // self.rows
            time = torch.arange(start, start + columns).repeat(self.rows)
            row = torch.arange(self.rows).repeat_interleave(columns)
            found += [torch.full((self.n_special, 2), -1), torch.stack([time, row], 1)]
            start += columns
        return torch.cat(found)


class PooledTokens:
    """Direct path of a one-stage encoder: final norm with frozen statistics, then a mean."""

    def __init__(self, layout: TokenLayout, pool: Pool, step: Tensor, final: Tensor) -> None:
        """`step` [width, width] follows the last block, but for 1/σ and the constant `final`."""
        self._layout = layout
        self._pool: Pool = pool
        step = step.detach()
        slots = layout.rows if pool == "stack" else 1
        # Slot r writes to the r-th part of the latent.
        steps = torch.eye(slots).to(step)[:, None, :, None] * step[None, :, None, :]
        self.steps = StageSteps((steps.flatten(2),), (None,), final.detach().repeat(slots))

    def view(self, stage: int, value: Tensor) -> Tensor:
        return self._layout.pooled(value, self._pool)

    def weights(self, scales: Mapping[int, Tensor]) -> list[Tensor]:
        scale = self.view(0, scales[0])
        return [scale / scale.shape[1]]


def sounding_positions(features: Tensor) -> Tensor:
    """[clip, position] of a log-mel [clip, frame, mel], two frames a position: where any bin is
    above the lowest of the clip, where padding lies. A clip of nothing else counts whole."""
    lowest = features.amin((1, 2), keepdim=True)
    frames = (features > lowest + 1e-6).any(-1)
    if frames.shape[1] % 2:
        frames = torch.cat([frames, frames[:, -1:]], 1)
    found = frames.unflatten(1, (-1, 2)).any(-1)
    return found | ~found.any(1, keepdim=True)
