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
from typing import Protocol

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


class HeldPart(Protocol):
    """Something that is to stay as it is, as a function of the same gains."""

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """How far it went, and the slope [gain] of that."""

    @property
    def form(self) -> FloatArray:
        """A model of its curvature, [gain, gain]."""

    def only(self, gains: np.ndarray) -> HeldPart:
        """The same as a function of these gains, the others at 1."""


@dataclass(frozen=True)
class DirectLoss:
    """An objective over the clips of `terms`, and what is held in place."""

    terms: DirectTerms
    from_latent: FromLatent
    objective: Objective
    judge: Judge
    held: tuple[HeldPart, ...] = ()
    hold: float = 0.0
    """How strongly."""

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        latent = self.terms.shifted(x).requires_grad_()
        rows = torch.arange(len(latent))
        with torch.enable_grad():
            loss = self.objective(self.from_latent(latent), rows)
            loss.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        value, slope = loss.item(), self.terms.pulled(latent.grad)
        for part in self.held:
            far, away = part(x)
            value, slope = value + self.hold * far, slope + self.hold * away
        return value, slope

    def holding(self, held: tuple[HeldPart, ...], hold: float) -> DirectLoss:
        """The same with something held in place."""
        return replace(self, held=held, hold=hold)

    def only(self, gains: np.ndarray) -> DirectLoss:
        """The same as a function of these gains, the others at 1."""
        held = tuple(part.only(gains) for part in self.held)
        return replace(self, terms=self.terms.only(gains), held=held)

    def curvature(self, x: FloatArray) -> FloatArray:
        """B"""
        metric = answer_metric(self._some.shifted(x), self.from_latent, self.judge)
        found = self.terms.energy(metric)
        for part in self.held:
            found = found + self.hold * part.form
        return found

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


def mean_metric(latent: Tensor, seen: FromLatent) -> FloatArray:
    """Mean of J'J of anything that is seen of the latent, [D, D]: ‖·‖² is its squared change."""
    point = latent.detach().requires_grad_()
    with torch.enable_grad():
        there = seen(point)
    metric = torch.zeros(latent.shape[1], latent.shape[1], dtype=latent.dtype)
    for axis in range(there.shape[1]):
        (slope,) = torch.autograd.grad(there[:, axis].sum(), point, retain_graph=True)
        metric += slope.T @ slope
    return (metric / len(point)).numpy().astype(np.float64)
