"""Axes learned together with gains, in the place of principal ones.

A unit's edit is a symmetric matrix in the subspace of its contribution, I + S. Its eigenvectors are
axes and its eigenvalues gains, so what comes out is an ordinary set of gains in other axes of the
same subspaces. What is made small may count reference clips too, so that axes are found which those
do not use. It falls by L-BFGS under a ridge, for some steps only: axes are taken from it, and a
place to begin. Gains along them, and their bounds, are for the solver.
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
RIDGE = 1e-4
BOUNDED_RIDGE = 3.0
"""As a share of the root mean square slope at 1: strong enough that few eigenvalues leave the
bounds, and that other clips of the kind make much the same axes."""
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


def _root(energy: Tensor) -> Tensor:
    return energy.clamp(min=1e-3 * float(energy.max()) if len(energy) else 0.0).sqrt()


@dataclass(frozen=True)
class LearnedAxes:
    """Axes, and the gains that were learned together with them."""

    spectra: dict[str, Spectrum]
    change: FloatArray
    """λ − 1 of all gains along them, in the order of direct terms."""


def learned_axes(clips: Measured, bounds: Bounds, held: Sequence[Measured] = ()) -> LearnedAxes:
    """The spectra of the clips' terms with axes learned from them, for gains within these bounds.

    `held` are reference clips along the same axes, and what their going elsewhere costs.
    """
    terms = clips[0]
    if not terms.keep_mean or terms.whole.shape[2]:
        raise InputError("axes are learned for units with their mean kept and a gain a component")
    loss = _TurnedLoss([clips, *held])
    turns, means = loss.parts(_fall(loss, bounds.finite))
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


def _fall(loss: _TurnedLoss, bounded: bool) -> Tensor:
    """L-BFGS under a ridge: a slight one without bounds, which decides what nothing else does."""
    root = loss.bends.sqrt()
    n = len(root)
    steep = float((loss(torch.zeros(n))[1] / root).norm()) / n**0.5
    ridge = BOUNDED_RIDGE * steep if bounded else RIDGE / float(loss.bends.mean())

    def at(scaled: FloatArray) -> tuple[float, FloatArray]:
        edit = torch.from_numpy(scaled).float() / root
        value, slope = loss(edit)
        slope = slope / root + ridge * root * edit
        value += 0.5 * ridge * float((loss.bends * edit.square()).sum())
        return value, slope.double().numpy()

    options = {"maxiter": STEPS, "maxcor": 20, "ftol": 1e-6}
    found = minimize(at, np.zeros(n), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x).float() / root
