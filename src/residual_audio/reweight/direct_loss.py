"""The loss of direct-path gains as a function of x = λ − 1: value, slope, and a model of curvature.

    latent(x) = base + (a ∘ x) Φ + x₀ M  (+ whole contributions of coarse units)

One evaluation is two matrix products; the joint head and the objective in between are small. The
model of the curvature takes the mean over clips of G = J'SJ (J: d answers / d latent, S: covariance
of the answers), the Gauss–Newton matrix in the latent, and the amplitudes apart from it:

    B = (a'a / n) ∘ (Φ G Φ')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from residual_audio.judge.answers import Judge
from residual_audio.reweight.objectives import Objective
from residual_audio.reweight.terms import DirectTerms
from residual_audio.types import FloatArray

FromLatent = Callable[[Tensor], Tensor]
# enough clips for a mean over them to be known, and no more
CURVATURE_CLIPS = 256
MANY_TEXTS = 32
DRAWS = 16


@dataclass(frozen=True)
class DirectLoss:
    """An objective over the clips of `terms`, and what is held in place."""

    terms: DirectTerms
    from_latent: FromLatent
    objective: Objective
    judge: Judge
    hold: FloatArray | None = None
    """[gain, gain]: adds ½ x' hold x."""

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
        held = self.hold @ x
        return value.item() + 0.5 * float(x @ held), slope + held

    def holding(self, form: FloatArray | None) -> DirectLoss:
        """The same with something held in place."""
        return replace(self, hold=form)

    def only(self, gains: np.ndarray) -> DirectLoss:
        """The same as a function of these gains, the others at 1."""
        hold = None if self.hold is None else self.hold[np.ix_(gains, gains)]
        return replace(self, terms=self.terms.only(gains), hold=hold)

    def curvature(self, x: FloatArray) -> FloatArray:
        """B"""
        metric = answer_metric(self._some.shifted(x), self.from_latent, self.judge)
        found = self.terms.energy(metric)
        return found if self.hold is None else found + self.hold

    @cached_property
    def _some(self) -> DirectTerms:
        n = len(self.terms.base)
        if n <= CURVATURE_CLIPS:
            return self.terms
        return self.terms.at(np.linspace(0, n - 1, CURVATURE_CLIPS).round().astype(np.int64))


def answer_metric(latent: Tensor, from_latent: FromLatent, judge: Judge) -> FloatArray:
    """Mean Fisher information of the answers in the latent, [D, D]: ‖·‖² is twice a KL divergence.

    E over answers c of ∇ log p(c) ∇ log p(c)'; with many texts, over some drawn with a fixed seed.
    """
    point = latent.detach().requires_grad_()
    with torch.enable_grad():
        log_p = judge.logits(from_latent(point)).log_softmax(-1)
    p = log_p.detach().exp()
    n, n_texts = p.shape
    metric = torch.zeros(latent.shape[1], latent.shape[1], dtype=latent.dtype)
    if n_texts <= MANY_TEXTS:
        draws = [(torch.full((n,), c), p[:, c].sqrt()) for c in range(n_texts)]
    else:
        seeded = torch.Generator().manual_seed(0)
        drawn = torch.multinomial(p, DRAWS, replacement=True, generator=seeded)
        draws = [(drawn[:, i], torch.full((n,), DRAWS**-0.5)) for i in range(DRAWS)]
    for text, weight in draws:
        picked = log_p.gather(1, text[:, None]).sum()
        (slope,) = torch.autograd.grad(picked, point, retain_graph=True)
        weighed = slope * weight[:, None]
        metric += weighed.T @ weighed
    return (metric / n).numpy().astype(np.float64)


def embedding_metric(latent: Tensor, from_latent: FromLatent) -> FloatArray:
    """Mean of J'J of the unit embedding in the latent, [D, D]: ‖·‖² is a squared distance."""
    point = latent.detach().requires_grad_()
    with torch.enable_grad():
        unit = torch.nn.functional.normalize(from_latent(point), dim=-1)
    metric = torch.zeros(latent.shape[1], latent.shape[1], dtype=latent.dtype)
    for axis in range(unit.shape[1]):
        (slope,) = torch.autograd.grad(unit[:, axis].sum(), point, retain_graph=True)
        metric += slope.T @ slope
    return (metric / len(point)).numpy().astype(np.float64)
