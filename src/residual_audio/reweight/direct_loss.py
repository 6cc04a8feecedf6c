"""The loss of direct-path gains as a function of x = λ − 1: value, slope, and a model of curvature.

    latent(x) = base + (a ∘ x) Φ + x₀ M  (+ whole contributions of coarse units)

One evaluation is two matrix products; the joint head and the objective in between are small. The
model of the curvature takes the mean over clips of G = J'SJ (J: d answers / d latent, S: covariance
of the answers), the Gauss–Newton matrix in the latent, and the amplitudes apart from it:

    B = (a'a / n) ∘ (Φ G Φ')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from residual_audio.judge.answers import Judge
from residual_audio.reweight.holding import Anchor, Holding
from residual_audio.reweight.latent_metrics import FromLatent, answer_metric
from residual_audio.reweight.objectives import Objective
from residual_audio.reweight.terms import DirectTerms
from residual_audio.types import FloatArray

# enough clips for a mean over them to be known, and no more
CURVATURE_CLIPS = 256


@dataclass(frozen=True)
class DirectLoss:
    """An objective over the clips of `terms`, and what is held in place."""

    terms: DirectTerms
    from_latent: FromLatent
    objective: Objective
    judge: Judge
    hold: Holding | None = None

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        latent = self.terms.shifted(x).requires_grad_()
        rows = torch.arange(len(latent))
        with torch.enable_grad():
            value = self.objective(self.from_latent(latent), rows)
            value.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        slope = self.terms.pulled(latent.grad)
        if self.hold is None:
            return value.item(), slope
        held, pull = self.hold(x)
        return value.item() + held, slope + pull

    def holding(self, anchors: Sequence[Anchor], strength: float) -> DirectLoss:
        """The same with references held in place."""
        return replace(self, hold=Holding(tuple(anchors), strength) if anchors else None)

    def only(self, gains: np.ndarray) -> DirectLoss:
        """The same as a function of these gains, the others at 1."""
        hold = None if self.hold is None else self.hold.only(gains)
        return replace(self, terms=self.terms.only(gains), hold=hold)

    def curvature(self, x: FloatArray) -> FloatArray:
        """B"""
        metric = answer_metric(self._some.shifted(x), self.from_latent, self.judge)
        found = self.terms.energy(metric)
        return found if self.hold is None else found + self.hold.curvature(x)

    @cached_property
    def _some(self) -> DirectTerms:
        n = len(self.terms.base)
        if n <= CURVATURE_CLIPS:
            return self.terms
        return self.terms.at(np.linspace(0, n - 1, CURVATURE_CLIPS).round().astype(np.int64))
