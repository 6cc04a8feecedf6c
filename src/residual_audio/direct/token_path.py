"""The direct path token by token: what a vector added at one token adds to the pooled latent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from residual_audio.capture.direct_pools import compose
from residual_audio.models.encoder import Encoder

Weights = Sequence[Tensor]
"""Per stage [clip, instance, slot]: what norms and the mean make of each token of a clip."""


class TokenPath:
    """An encoder's direct path, norm statistics frozen at each clip's own."""

    def __init__(self, encoder: Encoder) -> None:
        self._path = encoder.direct_path()
        self._maps = compose(self._path.steps.steps)
        self.entry = self._path.steps.entry
        """Per stage, the constant that every token of it begins with."""

    def weights(self, scales: Mapping[int, Tensor]) -> Weights:
        """From 1/σ of the norms that end the stages."""
        return self._path.weights(scales)

    def added(
        self, stage: int, value: Tensor, weights: Weights, tokens: Tensor | None = None
    ) -> Tensor:
        """[clip, token, width] added at these tokens of a stage → [clip, latent] it comes to."""
        seen = self._path.view(stage, value) * weights[stage][..., None]
        if tokens is not None:
            seen = seen * self._path.view(stage, tokens[None, :, None].to(value))
        return torch.einsum("csw,swl->cl", seen.sum(1), self._maps[stage])

    def along(self, stage: int, toward: Tensor) -> Tensor:
        """A direction of the latent [latent], seen from each slot of a stage: [slot, width]."""
        return self._maps[stage] @ toward

    def read(self, stage: int, value: Tensor, weights: Weights, along: Tensor) -> Tensor:
        """What each token adds along a direction: value [clip, token, part, d] and along
        [slot, part, d] → [clip, token, part]; a token that the latent does not read adds 0."""
        seen = self._path.view(stage, value)  # clip instance slot part d
        found = torch.einsum("cispd,spd->cisp", seen, along) * weights[stage][..., None]
        number = torch.arange(value.shape[1], device=value.device)[None, :, None]
        place = self._path.view(stage, number).flatten()
        out = found.new_zeros(*value.shape[:3])
        out[:, place] = found.flatten(1, 2)
        return out
