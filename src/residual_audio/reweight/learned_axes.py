"""Axes learned together with gains: bounds and what is held are kept, principal axes given up.

A unit's edit is a symmetric matrix in the subspace of its contribution, I + S with eigenvalues
between the bounds. Its eigenvectors are axes and its eigenvalues gains, so what comes out is an
ordinary set of gains in other axes of the same subspaces. What is made small may count reference
clips too, so that axes are found which those do not use. Without bounds it falls by L-BFGS; with
bounds by accelerated projected descent (FISTA with restart, Beck & Teboulle 2009; O'Donoghue &
Candès 2015): the projection clips eigenvalues. Either stops early, as only the axes are taken from
it, and a place to begin: gains along them are for the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.reweight.penalty import Bounds
from residual_audio.reweight.terms import DirectTerms
from residual_audio.types import FloatArray, Spectrum

STEPS = 60
ENOUGH = 3e-3
"""Stop where ten steps lower the loss by less than this share of it."""
NOISE = 1e-6
RIDGE = 1e-4
Measured = tuple[DirectTerms, Callable[[Tensor], Tensor]]
"""Clips, and what is made small as a function of their latents [clip, D]."""


class _Turned:
    """Clips under an edit that turns: their latents, and slopes in the edit."""

    def __init__(self, terms: DirectTerms, value: Callable[[Tensor], Tensor]) -> None:
        self._terms, self._value = terms, value
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

    def bends(self) -> tuple[Tensor, Tensor]:
        """The root of the energy through every unit, and of its mean."""
        energy = self._amplitudes.square().sum((1, 2)) / self._amplitudes.shape[1]
        return _root(energy), _root(self._terms.means.square().sum(1))

    def value(self, turns: Tensor, means: Tensor) -> float:
        with torch.no_grad():
            return float(self._value(self._latent(turns, means)))

    def __call__(self, turns: Tensor, means: Tensor) -> tuple[float, Tensor]:
        latent = self._latent(turns, means).requires_grad_()
        with torch.enable_grad():
            value = self._value(latent)
            value.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        along = (latent.grad @ self._axes.T).view(-1, self.units, self.width).transpose(0, 1)
        slope = self._amplitudes.transpose(1, 2) @ along
        slope = 0.5 * (slope + slope.transpose(1, 2))
        return value.item(), torch.cat([slope.flatten(), self._terms.means @ latent.grad.sum(0)])

    def _latent(self, turns: Tensor, means: Tensor) -> Tensor:
        moved = (self._amplitudes @ turns).transpose(0, 1).flatten(1) @ self._axes
        return self._terms.base + moved + means @ self._terms.means


class _TurnedLoss:
    """What is made small under an edit: S of every unit and the gains of means, in one vector."""

    def __init__(self, parts: Sequence[Measured]) -> None:
        self._parts = [_Turned(*part) for part in parts]
        self.units, self.width = self._parts[0].units, self._parts[0].width
        inside, means = self._parts[0].bends()
        self.bends = torch.cat([inside.repeat_interleave(self.width**2), means])
        """Relative curvature of every number."""

    def parts(self, edit: Tensor) -> tuple[Tensor, Tensor]:
        """S [unit, width, width] and the changes of the gains of means [unit]."""
        inside = self.units * self.width**2
        return edit[:inside].view(self.units, self.width, self.width), edit[inside:]

    def value(self, edit: Tensor) -> float:
        return sum(part.value(*self.parts(edit)) for part in self._parts)

    def __call__(self, edit: Tensor) -> tuple[float, Tensor]:
        found = [part(*self.parts(edit)) for part in self._parts]
        return sum(value for value, _ in found), torch.stack([s for _, s in found]).sum(0)

    def project(self, edit: Tensor, bounds: Bounds) -> Tensor:
        """The nearest edit whose gains keep the bounds."""
        turns, means = self.parts(edit)
        low, high = bounds.low - 1.0, bounds.high - 1.0
        values, vectors = torch.linalg.eigh(turns)
        turns = (vectors * values.clamp(low, high)[:, None]) @ vectors.transpose(1, 2)
        return torch.cat([turns.flatten(), means.clamp(low, high)])


def _root(energy: Tensor) -> Tensor:
    return energy.clamp(min=1e-3 * float(energy.max()) if len(energy) else 0.0).sqrt()


@dataclass(frozen=True)
class LearnedAxes:
    """Axes, and the gains that were learned together with them."""

    spectra: dict[str, Spectrum]
    change: FloatArray
    """λ − 1 of all gains along them, in the order of direct terms."""


def learned_axes(clips: Measured, bounds: Bounds, held: Sequence[Measured] = ()) -> LearnedAxes:
    """The spectra of the clips' terms with axes learned from them, gains within the bounds.

    `held` are reference clips along the same axes, and what their going elsewhere costs.
    """
    terms = clips[0]
    if not terms.keep_mean or terms.whole.shape[2]:
        raise InputError("axes are learned for units with their mean kept and a gain a component")
    loss = _TurnedLoss([clips, *held])
    turns, means = loss.parts(_descend(loss, bounds) if bounds.finite else _fall(loss))
    found, changes = {}, []
    for unit, size, turn in zip(terms.units, terms.sizes, turns.double().numpy(), strict=True):
        spectrum = terms.spectra[unit]
        change, mix = np.linalg.eigh(turn[:size, :size])
        # eigenvectors [old axis, new axis], the largest gain first
        mix = mix[:, ::-1].T
        values = (mix**2) @ np.asarray(spectrum.eigenvalues)
        found[unit] = replace(spectrum, basis=mix @ spectrum.basis, eigenvalues=values)
        changes.append(change[::-1])
    return LearnedAxes(found, np.concatenate([*changes, means.double().numpy()]))


def _fall(loss: _TurnedLoss) -> Tensor:
    """Without bounds, under a slight ridge that decides what nothing else does."""
    root = loss.bends.sqrt()
    ridge = RIDGE / float(loss.bends.mean())

    def at(scaled: FloatArray) -> tuple[float, FloatArray]:
        edit = torch.from_numpy(scaled).float() / root
        value, slope = loss(edit)
        slope = slope / root + ridge * root * edit
        value += 0.5 * ridge * float((loss.bends * edit.square()).sum())
        return value, slope.double().numpy()

    start = np.zeros(len(root))
    options = {"maxiter": STEPS, "maxcor": 20, "ftol": 1e-6}
    found = minimize(at, start, jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x).float() / root


def _descend(loss: _TurnedLoss, bounds: Bounds) -> Tensor:
    bends = loss.bends
    here = ahead = torch.zeros(len(bends))
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
