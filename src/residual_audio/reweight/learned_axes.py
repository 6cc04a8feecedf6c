"""Axes learned together with gains, in the place of principal ones.

A unit's edit is a symmetric matrix in the subspace of its contribution, I + S. Its eigenvectors are
axes and its eigenvalues gains, so what comes out is an ordinary set of gains in other axes of the
same subspaces. What is made small may count reference clips too, so that axes are found which those
do not use. It falls by L-BFGS under a ridge, for some steps only: axes are taken from it, and a
place to begin. Gains along them, and their bounds, are for the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from residual_audio.errors import InputError
from residual_audio.reweight.penalty import Bounds
from residual_audio.reweight.terms import DirectTerms
from residual_audio.reweight.turned import Roots, TurnedClips, TurnedEdit, Value, along_axes
from residual_audio.types import FloatArray, Spectrum

STEPS = 60
RIDGE = 1e-4
BOUNDED_RIDGE = 3.0
"""As a share of the root mean square slope at 1: strong enough that few eigenvalues leave the
bounds, and that other clips of the kind make much the same axes."""
Measured = tuple[DirectTerms, Value]
"""Clips, and what is made small as a function of their latents [clip, D]."""


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
    roots = Roots.of(terms)
    parts = [TurnedClips(*part, roots) for part in (clips, *held)]
    along, change = along_axes(terms, roots.plain(_fall(parts, bounds.finite)))
    return LearnedAxes(dict(along.spectra), change)


def _fall(parts: Sequence[TurnedClips], bounded: bool) -> TurnedEdit:
    """L-BFGS under a ridge: a slight one without bounds, which decides what nothing else does."""
    first = parts[0].nothing()
    inside, shape = first.turns.numel(), first.turns.shape

    def edit_of(z: FloatArray) -> TurnedEdit:
        flat = torch.from_numpy(z).float()
        return TurnedEdit(flat[:inside].view(shape), flat[inside:])

    def slope(edit: TurnedEdit) -> tuple[float, FloatArray]:
        found = [part.slope(part.moved(edit)) for part in parts]
        flat = [torch.cat([s.turns.flatten(), s.means]) for _, s in found]
        return sum(value for value, _ in found), torch.stack(flat).sum(0).double().numpy()

    ridge = BOUNDED_RIDGE * float(np.sqrt(np.mean(slope(first)[1] ** 2)))
    if not bounded:
        bends = parts[0].roots
        each = torch.cat([bends.units.repeat_interleave(shape[1] ** 2), bends.means]).square()
        ridge = RIDGE / float(each.mean())

    def at(z: FloatArray) -> tuple[float, FloatArray]:
        value, falls = slope(edit_of(z))
        return value + 0.5 * ridge * float(z @ z), falls + ridge * z

    options = {"maxiter": STEPS, "maxcor": 20, "ftol": 1e-6}
    start = np.zeros(inside + len(first.means))
    return edit_of(minimize(at, start, jac=True, method="L-BFGS-B", options=options).x)
