"""Axes learned together with bounded gains: the bound is kept, the principal axes are given up.

A unit's edit is a symmetric matrix in the subspace of its contribution, I + S with eigenvalues
between the bounds. Its eigenvectors are axes and its eigenvalues gains, so what comes out is an
ordinary set of gains in other axes of the same subspaces. The loss falls by accelerated projected
descent (FISTA with restart, Beck & Teboulle 2009; O'Donoghue & Candès 2015): the projection clips
eigenvalues.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.reweight.direct_loss import FromLatent
from residual_audio.reweight.objectives import Objective
from residual_audio.reweight.penalty import Bounds
from residual_audio.reweight.terms import DirectTerms
from residual_audio.types import Spectrum

STEPS = 60
ENOUGH = 3e-3
"""Stop where ten steps lower the loss by less than this share of it."""
NOISE = 1e-6


class _TurnedLoss:
    """The loss of clips under an edit: S of every unit and the gains of means, in one vector."""

    def __init__(self, terms: DirectTerms, from_latent: FromLatent, objective: Objective) -> None:
        self._terms, self._from_latent, self._objective = terms, from_latent, objective
        self.units, self.width = len(terms.sizes), max(terms.sizes)
        n, d = terms.base.shape
        place = [u * self.width + np.arange(size) for u, size in enumerate(terms.sizes)]
        inside = torch.from_numpy(np.concatenate(place))
        # units of fewer dimensions are padded with directions that nothing goes through
        padded = torch.zeros(n, self.units * self.width)
        padded[:, inside] = terms.amplitudes
        self._amplitudes = padded.view(n, self.units, self.width).transpose(0, 1).contiguous()
        self._axes = torch.zeros(self.units * self.width, d)
        self._axes[inside] = terms.axes
        self._rows = torch.arange(n)

    def parts(self, edit: Tensor) -> tuple[Tensor, Tensor]:
        """S [unit, width, width] and the changes of the gains of means [unit]."""
        inside = self.units * self.width**2
        return edit[:inside].view(self.units, self.width, self.width), edit[inside:]

    def start(self) -> Tensor:
        return torch.zeros(self.units * self.width**2 + len(self._terms.means))

    def bends(self) -> Tensor:
        """Relative curvature of every number: the root of the energy through its unit."""
        energy = self._amplitudes.square().sum((1, 2)) / self._amplitudes.shape[1]
        means = self._terms.means.square().sum(1)
        return torch.cat([_root(energy).repeat_interleave(self.width**2), _root(means)])

    def value(self, edit: Tensor) -> float:
        with torch.no_grad():
            return float(self._objective(self._from_latent(self._latent(edit)), self._rows))

    def __call__(self, edit: Tensor) -> tuple[float, Tensor]:
        latent = self._latent(edit).requires_grad_()
        with torch.enable_grad():
            value = self._objective(self._from_latent(latent), self._rows)
            value.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        along = (latent.grad @ self._axes.T).view(-1, self.units, self.width).transpose(0, 1)
        slope = self._amplitudes.transpose(1, 2) @ along
        slope = 0.5 * (slope + slope.transpose(1, 2))
        return value.item(), torch.cat([slope.flatten(), self._terms.means @ latent.grad.sum(0)])

    def _latent(self, edit: Tensor) -> Tensor:
        turns, means = self.parts(edit)
        moved = (self._amplitudes @ turns).transpose(0, 1).flatten(1) @ self._axes
        return self._terms.base + moved + means @ self._terms.means

    def project(self, edit: Tensor, bounds: Bounds) -> Tensor:
        """The nearest edit whose gains keep the bounds."""
        turns, means = self.parts(edit)
        low, high = bounds.low - 1.0, bounds.high - 1.0
        values, vectors = torch.linalg.eigh(turns)
        turns = (vectors * values.clamp(low, high)[:, None]) @ vectors.transpose(1, 2)
        return torch.cat([turns.flatten(), means.clamp(low, high)])


def _root(energy: Tensor) -> Tensor:
    return energy.clamp(min=1e-3 * float(energy.max()) if len(energy) else 0.0).sqrt()


def learned_axes(
    terms: DirectTerms, from_latent: FromLatent, objective: Objective, bounds: Bounds
) -> dict[str, Spectrum]:
    """The spectra of `terms` with axes learned from its clips, gains staying within the bounds."""
    if not terms.keep_mean or terms.whole.shape[2]:
        raise InputError("axes are learned for units with their mean kept and a gain a component")
    loss = _TurnedLoss(terms, from_latent, objective)
    turns, _ = loss.parts(_descend(loss, bounds))
    found = {}
    for unit, size, turn in zip(terms.units, terms.sizes, turns.double().numpy(), strict=True):
        spectrum = terms.spectra[unit]
        # eigenvectors [old axis, new axis], the largest gain first
        mix = np.linalg.eigh(turn[:size, :size])[1][:, ::-1].T
        values = (mix**2) @ np.asarray(spectrum.eigenvalues)
        found[unit] = replace(spectrum, basis=mix @ spectrum.basis, eigenvalues=values)
    return found


def _descend(loss: _TurnedLoss, bounds: Bounds) -> Tensor:
    bends = loss.bends()
    here = ahead = loss.start()
    value, slope = loss(ahead)
    # the first step may move the steepest number by a tenth
    scale = 10.0 * float((slope / bends).abs().max())
    momentum, history = 1.0, [value]
    for _ in range(STEPS):
        while True:
            new = loss.project(ahead - slope / (scale * bends), bounds)
            change = new - ahead
            model = float(slope @ change) + 0.5 * scale * float(bends @ change.square())
            if loss.value(new) <= value + model + NOISE:
                break
            scale *= 2.0
        following = 0.5 * (1.0 + (1.0 + 4.0 * momentum**2) ** 0.5)
        carry = (momentum - 1.0) / following
        if float((ahead - new) @ (new - here)) > 0:
            carry, following = 0.0, 1.0  # it overshoots: begin again from here
        ahead, here, momentum = new + carry * (new - here), new, following
        value, slope = loss(ahead)
        scale *= 0.9
        history.append(value)
        if len(history) > 10 and history[-11] - value < ENOUGH * abs(history[0]):
            break
    return here
