"""How what is added to the residual stream reaches the pooled latent, norm statistics frozen.

With 1/σ of every token held at its value, the merges and the final norm are affine. A vector v
added at token t of stage s then adds  w[t] · v @ maps[s][slot(t)]  to the pooled latent: a weight
that depends on the clip, and a matrix that does not. The slot is where the token will sit in its
merged ancestors; the matrix is a product of one fixed step a stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn


class DirectPath(Protocol):
    """What an encoder says about its own direct path; see `StageSteps` for the fixed part."""

    steps: StageSteps

    def view(self, stage: int, value: Tensor) -> Tensor:
        """[clip, token, …] of a stage → [clip, instance, slot, …]; unpooled tokens drop."""

    def weights(self, scales: Mapping[int, Tensor]) -> list[Tensor]:
        """1/σ of each stage's closing norm → per stage, the weights [clip, instance, slot]."""


@dataclass(frozen=True)
class StageSteps:
    """The fixed matrices and constant vectors of a direct path."""

    steps: tuple[Tensor, ...]
    """Per stage [n, width, next width]: from slot i of the merge that ends the stage to the next
    stage (to the latent, for the last); maps[s][k] = steps[s][k % n] @ maps[s + 1][k // n]."""
    entry: tuple[Tensor | None, ...]
    """Per stage, a constant that every token starts with (the merge norm's β, projected)."""
    final: Tensor
    """Constant added to the pooled latent (the final norm's β)."""


def affine_of_norm(norm: nn.LayerNorm) -> Tensor:
    """(I − 11ᵀ/n) diag(γ): what LayerNorm does to a vector, but for 1/σ and β. [n, n]"""
    n = norm.normalized_shape[0]
    eye = torch.eye(n, dtype=norm.weight.dtype, device=norm.weight.device)
    return (eye - 1.0 / n) * norm.weight


class MergedTokens:
    """Direct path of an encoder whose tokens are in Z-order and merge four by four (HTS-AT)."""

    def __init__(self, merges: list[tuple[nn.LayerNorm, Tensor]], norm: nn.LayerNorm) -> None:
        """`merges`: norm over 4·width and reduction [4·width, next width], for all but the last."""
        steps: list[Tensor] = []
        entry: list[Tensor | None] = [None]
        for merge_norm, reduction in merges:
            step = affine_of_norm(merge_norm) @ reduction
            steps.append(step.unflatten(0, (4, -1)).detach())
            entry.append((merge_norm.bias @ reduction).detach())
        steps.append(affine_of_norm(norm)[None].detach())
        self.steps = StageSteps(tuple(steps), tuple(entry), norm.bias.detach())
        self._last = len(merges)

    def view(self, stage: int, value: Tensor) -> Tensor:
        return value.unflatten(1, (-1, 4 ** (self._last - stage)))

    def weights(self, scales: Mapping[int, Tensor]) -> list[Tensor]:
        weight = scales[self._last][..., None] / scales[self._last].shape[1]  # clip instance 1
        found = [weight]
        for stage in reversed(range(self._last)):
            # `scales[stage]` belongs to merged tokens, that is to tokens of the next stage.
            weight = self.view(stage + 1, scales[stage]) * weight
            weight = weight.repeat_interleave(4, dim=2)
            found.append(weight)
        return found[::-1]
