"""The least of a loss over edits that turn, with gains within bounds or without any.

    minimise  L(z) + ρ/2 ‖z‖²,   low ≤ λ ≤ high

Without bounds all of it is smooth, and L-BFGS needs a third of the steps. Within bounds: symmetric
matrices with eigenvalues between two bounds are a convex set, and the nearest of its members has
the same axes and the eigenvalues cut off, so that bounds are a part of the fit and not a cut after
it (accelerated projected descent). Latents are linear in the edit, so that a step costs one product
there and one back. Nothing is random and nothing is to be tuned: a step is as long as the loss
allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from residual_audio.reweight.penalty import Bounds
from residual_audio.reweight.solver import Stopping
from residual_audio.reweight.turned import Roots, TurnedClips, TurnedEdit
from residual_audio.types import FloatArray

LONGER, SHORTER = 1.3, 0.5
MEMORY = 20
# what scipy calls it when it has evaluated as often as it may
AT_CAP = 1
# what is below so many roundings of the objective is hidden
ROUNDINGS = 8


@dataclass(frozen=True)
class TurnedSolution:
    """Where the solver stopped."""

    edit: TurnedEdit
    """z"""
    value: float
    residual: float
    """Of the optimality conditions, as a share of the largest slope at λ = 1."""
    evaluations: int
    converged: bool
    """The conditions hold, or ten steps do not descend any more. False: it stopped at the cap."""


def nearest_within(edit: TurnedEdit, bounds: Bounds, roots: Roots) -> TurnedEdit:
    """The nearest edit z whose gains are within the bounds."""
    low, high = bounds.low - 1.0, bounds.high - 1.0
    means = torch.minimum(torch.maximum(edit.means, low * roots.means), high * roots.means)
    # no eigenvalue is larger than the length of its matrix, or than the largest sum of a row
    largest = torch.minimum(edit.turns.flatten(1).norm(dim=1), edit.turns.abs().sum(2).amax(1))
    far = largest > min(-low, high) * roots.units
    if not bool(far.any()):
        return TurnedEdit(edit.turns, means)
    turns = edit.turns.clone()
    for size in roots.sizes[far].unique().tolist():
        some = (far & (roots.sizes == size)).nonzero()[:, 0]
        values, axes = torch.linalg.eigh(edit.turns[some, :size, :size])
        least, most = low * roots.units[some, None], high * roots.units[some, None]
        cut = torch.minimum(torch.maximum(values, least), most)
        over = (cut != values).any(1)
        axes = axes[over]
        turns[some[over], :size, :size] = (axes * cut[over][:, None, :]) @ axes.transpose(1, 2)
    return TurnedEdit(turns, means)


def at_rest(clips: TurnedClips) -> TurnedEdit:
    """The slope at λ = 1."""
    return clips.slope(clips.moved(clips.nothing()))[1]


def steep(slope: TurnedEdit) -> float:
    """The root mean square of a slope, in which ridges are told."""
    n = slope.turns.numel() + slope.means.numel()
    return (slope.dot(slope) / n) ** 0.5


@dataclass
class _Place:
    """An edit, and what it adds to the latents."""

    edit: TurnedEdit
    moved: torch.Tensor

    def beyond(self, last: _Place, times: float) -> _Place:
        """As far again from the last place, times a number."""
        edit = self.edit.plus(self.edit.plus(last.edit, -1.0), times)
        return _Place(edit, self.moved + times * (self.moved - last.moved))


class _Descent:
    """The objective and a step length that it allows."""

    def __init__(self, clips: TurnedClips, bounds: Bounds, ridge: float) -> None:
        self.clips, self.bounds, self.ridge = clips, bounds, ridge
        self.length, self.evaluations = 1.0 / max(ridge, 1e-9), 0
        self._rounding = ROUNDINGS * torch.finfo(clips.roots.units.dtype).eps

    def place(self, edit: TurnedEdit) -> _Place:
        return _Place(edit, self.clips.moved(edit))

    def value(self, at: _Place) -> float:
        self.evaluations += 1
        return self.clips.value(at.moved) + 0.5 * self.ridge * at.edit.dot(at.edit)

    def slope(self, at: _Place) -> tuple[float, TurnedEdit]:
        value, slope = self.clips.slope(at.moved)
        held = 0.5 * self.ridge * at.edit.dot(at.edit)
        return value + held, slope.plus(at.edit, self.ridge)

    def within(self, edit: TurnedEdit) -> TurnedEdit:
        return nearest_within(edit, self.bounds, self.clips.roots)

    def residual(self, at: _Place) -> float:
        """max |z − nearest(z − slope)|: 0 where the optimality (KKT) conditions hold."""
        back = self.within(at.edit.plus(self.slope(at)[1], -1.0))
        return at.edit.plus(back, -1.0).steepest()

    def step(self, start: _Place) -> tuple[_Place, float]:
        """Along the slope and back within the bounds, as far as a parabola holds."""
        value, slope = self.slope(start)
        while True:
            found = self.place(self.within(start.edit.plus(slope, -self.length)))
            change = found.edit.plus(start.edit, -1.0)
            bound = value + slope.dot(change) + change.dot(change) / (2 * self.length)
            reached = self.value(found)
            if reached <= bound + self._rounding * abs(bound) or self.length < 1e-12:
                return found, reached
            self.length *= SHORTER


def solve_turned(
    clips: TurnedClips,
    bounds: Bounds,
    ridge: float,
    start: TurnedEdit | None = None,
    stop: Stopping | None = None,
) -> TurnedSolution:
    """The edit z that makes loss and ridge least within the bounds, from `start` or the identity.

    `ridge` is ρ itself; `stop.unit` the largest slope at λ = 1, where it is known.
    """
    stop = Stopping() if stop is None else stop
    if not bounds.finite:
        return _without_bounds(clips, ridge, start, stop)
    descent = _Descent(clips, bounds, ridge)
    unit = at_rest(clips).steepest() if stop.unit is None else stop.unit
    here = last = descent.place(clips.nothing() if start is None else start)
    ahead, pace, values = here, 1.0, [descent.value(here)]
    done = False
    while not done and descent.evaluations < stop.evaluations:
        found, value = descent.step(ahead)
        if value > values[-1] and pace > 1.0:
            ahead, pace = here, 1.0  # it ran past the least: begin anew from here
            continue
        if value >= values[-1]:
            done = True
            break
        last, here = here, found
        values.append(value)
        faster = 0.5 * (1.0 + (1.0 + 4.0 * pace * pace) ** 0.5)
        ahead, pace = here.beyond(last, (pace - 1.0) / faster), faster
        descent.length *= LONGER
        if len(values) > 10:
            done = values[-11] - value <= stop.descent * max(1.0, abs(value))
        if not done and len(values) % 10 == 0:
            done = descent.residual(here) <= stop.tolerance * unit
    residual = descent.residual(here) / unit if unit else 0.0
    converged = done or residual <= stop.tolerance
    return TurnedSolution(here.edit, values[-1], residual, descent.evaluations, converged)


def _without_bounds(
    clips: TurnedClips, ridge: float, start: TurnedEdit | None, stop: Stopping
) -> TurnedSolution:
    """L-BFGS; it ends where ten steps, on the average, do not descend any more."""
    first = clips.nothing()
    inside, shape = first.turns.numel(), first.turns.shape
    unit = at_rest(clips).steepest() if stop.unit is None else stop.unit

    def edit_of(z: FloatArray) -> TurnedEdit:
        flat = torch.from_numpy(z).to(first.turns)
        return TurnedEdit(flat[:inside].view(shape), flat[inside:])

    def at(z: FloatArray) -> tuple[float, FloatArray]:
        edit = edit_of(z)
        value, slope = clips.slope(clips.moved(edit))
        return value + 0.5 * ridge * edit.dot(edit), _flat(slope.plus(edit, ridge))

    found = minimize(
        at,
        _flat(first if start is None else start),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxfun": stop.evaluations,
            "maxiter": stop.evaluations,
            "maxcor": MEMORY,
            "ftol": stop.descent / 10,
            "gtol": stop.tolerance * unit,
        },
    )
    residual = float(np.abs(found.jac).max(initial=0.0)) / unit if unit else 0.0
    # a search along a line that ends in roundings does not descend any more, either
    converged = found.status != AT_CAP
    return TurnedSolution(edit_of(found.x), float(found.fun), residual, int(found.nfev), converged)


def _flat(edit: TurnedEdit) -> FloatArray:
    return torch.cat([edit.turns.flatten(), edit.means]).double().numpy()
