"""Where the answers or embeddings of reference clips stood, and what it costs to move them.

    κ · mean KL(answers before ‖ answers now),   or   κ · mean ½ ‖embedding now − before‖²

with the gains in place, not linearised: gains that fit a new domain go far from 1, and what a
quadratic form around 1 says about reference clips there is not what happens to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.judge.answers import Judge
from residual_audio.reweight.latent_metrics import answer_metric, embedding_metric
from residual_audio.reweight.terms import DirectTerms
from residual_audio.types import FloatArray

Hold = Literal["answers", "embeddings"]
CURVATURE_CLIPS = 256


@dataclass(frozen=True)
class Anchor:
    """Reference clips, in the coordinates of the gains that are fitted."""

    terms: DirectTerms
    from_latent: Callable[[Tensor], Tensor]
    judge: Judge
    hold: Hold

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """How far λ = 1 + x moves them, on the average, and its slope [gain]."""
        latent = self.terms.shifted(x).requires_grad_()
        with torch.enable_grad():
            now = self._seen(latent)
            if self.hold == "answers":
                value = F.kl_div(now, self._before, reduction="batchmean", log_target=True)
            else:
                value = 0.5 * (now - self._before).square().sum(1).mean()
            value.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        return value.item(), self.terms.pulled(latent.grad)

    def curvature(self, x: FloatArray) -> FloatArray:
        """[gain, gain]: a model of the second derivative."""
        latent = self.terms.shifted(x)
        latent = latent[:: max(1, len(latent) // CURVATURE_CLIPS)]
        if self.hold == "answers":
            return self.terms.energy(answer_metric(latent, self.from_latent, self.judge))
        return self.terms.energy(embedding_metric(latent, self.from_latent))

    def only(self, gains: np.ndarray) -> Anchor:
        """The same as a function of these gains, the others at 1."""
        return replace(self, terms=self.terms.only(gains))

    @cached_property
    def _before(self) -> Tensor:
        with torch.no_grad():
            return self._seen(self.terms.here)

    def _seen(self, latent: Tensor) -> Tensor:
        joint = self.from_latent(latent)
        if self.hold == "embeddings":
            return F.normalize(joint, dim=-1)
        return self.judge.logits(joint).log_softmax(-1)


@dataclass(frozen=True)
class Holding:
    """Anchors of all references together, with a strength."""

    anchors: tuple[Anchor, ...]
    strength: float
    """κ, in nats of the loss for each nat (or half squared distance) that the references move."""

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        found = [anchor(x) for anchor in self.anchors]
        slope = np.sum([slope for _, slope in found], axis=0)
        return self.strength * sum(value for value, _ in found), self.strength * slope

    def curvature(self, x: FloatArray) -> FloatArray:
        return self.strength * np.sum([anchor.curvature(x) for anchor in self.anchors], axis=0)

    def only(self, gains: np.ndarray) -> Holding:
        return replace(self, anchors=tuple(anchor.only(gains) for anchor in self.anchors))
