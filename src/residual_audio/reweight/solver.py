"""The least of a smooth loss plus a penalty, by a deterministic second-order method.

    minimise  L(x) + R(w ∘ x),   x = λ − 1

L is smooth with a slope and a model of its curvature B; R (see `penalty`) brings kinks and bounds.
Two steps alternate until the optimality conditions hold:

1. *Descend over everything*: block coordinate descent on the quadratic model L'd + ½ d'Bd + R,
   unit by unit, then a line search on the true objective. Finds which gains move and which are at
   a bound.
2. *Polish what is free*: L-BFGS on the gains away from kinks and bounds, begun from the inverse of
   B there, so that a few steps do what a first-order method does in hundreds.

Nothing is random and nothing is to be tuned: the same numbers come out every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor
from scipy.linalg.blas import strsv

from residual_audio.reweight.penalty import Penalty
from residual_audio.types import FloatArray

ARMIJO = 1e-4
SWEEPS = 5
# in the model, which is only one itself, a few digits are enough
ROUGH = 16
SHORTENINGS = 7
POLISH_STEPS, EDGES = 12, 3
MEMORY = 30


class Smooth(Protocol):
    """A loss of x = λ − 1."""

    def __call__(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Value and slope [gain]."""

    def curvature(self, x: FloatArray) -> FloatArray:
        """[gain, gain], positive semi-definite: the second derivative, or a model of it."""


@dataclass(frozen=True)
class Solution:
    """Where the solver stopped, and how well the optimality conditions hold there."""

    x: FloatArray
    """λ − 1"""
    value: float
    residual: float
    """Of the optimality conditions, as a share of the slope at λ = 1."""
    evaluations: int
    converged: bool
    """The conditions hold, or no step descends any more (a loss with ReLUs has kinks of its own, at
    which a slope does not vanish). False: it stopped at the cap."""


@dataclass(frozen=True)
class Stopping:
    """When to stop: a tolerance on the optimality conditions, and a cap that is reported."""

    tolerance: float = 1e-3
    """As a share of the largest slope at λ = 1."""
    evaluations: int = 300
    unit: float | None = None
    """That slope, where it is known."""
    descent: float = 1e-13
    """Stop where ten steps lower the objective by less than this share of it. Rounding hides what
    is below 1e-13 in float64 and 3e-7 in float32."""


@dataclass
class _Point:
    """Where the solver stands, in u = w ∘ x."""

    u: FloatArray
    value: float
    slope: FloatArray
    """Of the loss alone."""


class _Objective:
    """L + R with every evaluation counted."""

    def __init__(self, loss: Smooth, penalty: Penalty, descent: float) -> None:
        self.loss, self.penalty, self.evaluations = loss, penalty, 0
        self._descent = descent

    def little(self, value: float) -> float:
        """What is no descent any more."""
        return self._descent * max(1.0, abs(value))

    def at(self, u: FloatArray) -> _Point:
        self.evaluations += 1
        value, slope = self.loss(u / self.penalty.weights)
        return _Point(u, value + self.penalty.value(u), slope / self.penalty.weights)


def solve(
    loss: Smooth, penalty: Penalty, start: FloatArray | None = None, stop: Stopping | None = None
) -> Solution:
    """The gains that minimise loss and penalty, from `start` (λ − 1) or the identity."""
    stop = Stopping() if stop is None else stop
    w = penalty.weights
    objective = _Objective(loss, penalty, stop.descent)
    here = objective.at(np.zeros(len(w)) if start is None else start * w)
    unit = stop.unit
    if unit is None:
        at_one = here if start is None else objective.at(np.zeros(len(w)))
        unit = float(np.abs(at_one.slope).max(initial=0.0))
    goal = stop.tolerance * unit
    model: _Model | None = None
    stuck = False
    while penalty.residual(here.u, here.slope) > goal and objective.evaluations < stop.evaluations:
        if model is None:
            model = _Model.of(loss.curvature(here.u / w) / np.outer(w, w), penalty)
        before = here.value
        if not penalty.smooth:
            here = _descend(objective, here, model)
        steps = POLISH_STEPS if not penalty.smooth else stop.evaluations - objective.evaluations
        here = _polish(objective, here, model.curvature, 0.3 * goal, steps)
        if stuck := before - here.value <= objective.little(before):
            break
    residual = penalty.residual(here.u, here.slope)
    return Solution(
        here.u / w,
        here.value,
        residual / unit if unit else 0.0,
        objective.evaluations,
        stuck or residual <= goal,
    )


@dataclass(frozen=True)
class _Model:
    """The quadratic model of the loss, cut into the blocks of the units."""

    curvature: FloatArray
    blocks: list[np.ndarray]
    parts: list[Penalty]
    bends: list[float]
    """The largest eigenvalue of each block."""

    @classmethod
    def of(cls, curvature: FloatArray, penalty: Penalty) -> _Model:
        order = np.argsort(penalty.owner, kind="stable")
        blocks = np.split(order, np.cumsum(np.bincount(penalty.owner))[:-1])
        floor = 1e-12 * np.trace(curvature) / len(curvature) + 1e-300
        bends = [float(np.linalg.eigvalsh(curvature[np.ix_(b, b)])[-1]) + floor for b in blocks]
        return cls(curvature, blocks, [penalty.at(block) for block in blocks], bends)

    def minimum(self, penalty: Penalty, here: _Point) -> FloatArray:
        """Unit by unit, proximal steps that are short enough for the unit's own block."""
        u, slope = here.u.copy(), here.slope.copy()
        enough = 1e-3 * np.abs(here.slope).max(initial=0.0)
        for _ in range(SWEEPS):
            largest = 0.0
            for unit in np.flatnonzero(penalty.awake(u, slope)):
                block, bend = self.blocks[unit], self.bends[unit]
                was = u[block]
                now = self.parts[unit].prox(was - slope[block] / bend, 1.0 / bend, ROUGH)
                change = now - was
                if change.any():
                    u[block] = now
                    slope += change @ self.curvature[block]  # it is symmetric: rows lie together
                    largest = max(largest, bend * float(np.abs(change).max()))
            if largest <= enough:
                break
        return u


def _descend(objective: _Objective, here: _Point, model: _Model) -> _Point:
    """To the minimum of the quadratic model, as far as the true objective descends."""
    penalty = objective.penalty
    towards = model.minimum(penalty, here) - here.u
    promise = float(here.slope @ towards)
    promise += penalty.value(here.u + towards) - penalty.value(here.u)
    return _search(objective, here, lambda t: here.u + t * towards, lambda t, _: t * promise)[0]


def _polish(
    objective: _Objective, here: _Point, curvature: FloatArray, goal: float, steps: int
) -> _Point:
    """L-BFGS on the free gains; one that meets an edge stays there and the rest begin anew."""
    penalty = objective.penalty
    face = _Face.of(penalty, here, curvature)
    pairs: list[tuple[FloatArray, FloatArray, float]] = []
    scale, length, edges, values = 1.0, 1.0, 0, list[float]()
    for _ in range(steps):
        values.append(here.value)
        slow = len(values) > 10 and values[-11] - here.value <= objective.little(here.value)
        if slow or not len(face.free):
            break
        slope = face.slope(here)
        if np.abs(slope).max() <= goal:
            break
        direction = -_two_loops(slope, pairs, face.inverse, scale)
        found, length = face.search(objective, here, direction, min(1.0, 2.0 * length))
        if found is here:
            break
        change, step = face.slope(found) - slope, (found.u - here.u)[face.free]
        here = found
        if not penalty.free(here.u)[face.free].all():
            edges += 1
            if edges == EDGES:
                break  # the model says better what else is to stop or to begin
            face, pairs, scale = _Face.of(penalty, here, curvature), [], 1.0
            continue
        damped = _damped(step, change, face.bent(step) / scale)
        along = float(step @ damped)
        pairs = [*pairs, (step, damped, 1.0 / along)][-MEMORY:]
        # kinks of the loss bend it more than the model knows
        scale = float(np.clip(along / face.inverse.norm(damped), 1e-4, 1.0))
    return here


@dataclass(frozen=True)
class _Face:
    """The gains that are free at a point, with the inverse curvature among them."""

    penalty: Penalty
    free: np.ndarray
    sign: FloatArray
    bends: FloatArray
    """[free, free]: curvature of the model and the penalty, in single precision."""
    inverse: _Inverse
    """Of `bends`."""

    @classmethod
    def of(cls, penalty: Penalty, here: _Point, curvature: FloatArray) -> _Face:
        free = np.flatnonzero(penalty.free(here.u))
        bends = curvature[np.ix_(free, free)].astype(np.float32)
        if len(free):
            # as little added as makes the factor stable
            least = 1e-6 * np.trace(bends) / len(free) + 1e-30
            bends[np.diag_indices(len(free))] += penalty.curvature(here.u)[free] + least
        return cls(penalty, free, np.sign(here.u[free]), bends, _Inverse(bends))

    def bent(self, step: FloatArray) -> FloatArray:
        """The change of the slope that the model expects of a step."""
        return (self.bends @ step.astype(np.float32)).astype(np.float64)

    def slope(self, point: _Point) -> FloatArray:
        """Of loss and penalty along the free gains."""
        return (point.slope + self.penalty.gradient(point.u))[self.free]

    def search(
        self, objective: _Objective, here: _Point, direction: FloatArray, longest: float
    ) -> tuple[_Point, float]:
        """Along the direction, bent where it leaves the bounds or a gain would change sign."""
        penalty, free, slope = self.penalty, self.free, self.slope(here)
        low, high = penalty.low[free], penalty.high[free]

        def along(t: float) -> FloatArray:
            part = np.clip(here.u[free] + t * direction, low, high)
            if penalty.lasso:
                part = np.where(part * self.sign < 0, 0.0, part)
            out = here.u.copy()
            out[free] = part
            return out

        def promise(_: float, u: FloatArray) -> float:
            return float(slope @ (u - here.u)[free])

        return _search(objective, here, along, promise, longest)


class _Inverse:
    """v ↦ bends⁻¹ v. It only guides the descent, for which single precision is enough."""

    def __init__(self, bends: FloatArray) -> None:
        self._lower = None
        if len(bends):
            lower, _ = cho_factor(bends, lower=True, check_finite=False)
            self._lower = np.asfortranarray(lower)

    def __call__(self, v: FloatArray) -> FloatArray:
        if self._lower is None:
            return v
        half, size = self._half(v)
        return size * np.asarray(strsv(self._lower, half, lower=1, trans=1), np.float64)

    def norm(self, v: FloatArray) -> float:
        """v' bends⁻¹ v, for half the work."""
        half, size = self._half(v)
        return size * size * float(np.dot(half, half))

    def _half(self, v: FloatArray) -> tuple[FloatArray, float]:
        """L⁻¹ v, up to a size that single precision holds well; as vector by vector, since a
        product with many would lay out the whole factor anew."""
        size = float(np.abs(v).max(initial=0.0)) or 1.0
        scaled = (v / size).astype(np.float32)
        return (scaled if self._lower is None else strsv(self._lower, scaled, lower=1)), size


def _damped(step: FloatArray, change: FloatArray, expected: FloatArray) -> FloatArray:
    """The change of slope, mixed with what the model expects where it bends too little (Powell).

    Across a kink the slope may even fall along a step; such a pair would make steps huge.
    """
    along, wanted = float(step @ change), float(step @ expected)
    if along >= 0.2 * wanted:
        return change
    share = 0.8 * wanted / (wanted - along)
    return share * change + (1.0 - share) * expected


def _two_loops(
    slope: FloatArray,
    pairs: list[tuple[FloatArray, FloatArray, float]],
    inverse: _Inverse,
    scale: float,
) -> FloatArray:
    """The L-BFGS product H v, with H₀ the inverse of the model's curvature, scaled."""
    v = slope.copy()
    kept = []
    for step, change, scale in reversed(pairs):
        a = scale * float(step @ v)
        v -= a * change
        kept.append(a)
    v = scale * inverse(v)
    for (step, change, scale), a in zip(pairs, reversed(kept), strict=True):
        v += (a - scale * float(change @ v)) * step
    return v


def _search(
    objective: _Objective,
    here: _Point,
    along: Callable[[float], FloatArray],
    promise: Callable[[float, FloatArray], float],
    longest: float = 1.0,
) -> tuple[_Point, float]:
    """The first of ever shorter steps t that descends by a share of what was promised.

    The next is where a parabola through what is known is least. `here` if none descends. With t.
    """
    little = 0.1 * objective.little(here.value)
    t = longest
    for _ in range(SHORTENINGS):
        u = along(t)
        wanted = promise(t, u)
        if not wanted < 0.0 or np.array_equal(u, here.u):
            return here, t
        found = objective.at(u)
        if found.value <= here.value + ARMIJO * wanted:
            return found, t
        if -wanted < little:
            return here, t
        t *= float(np.clip(-0.5 * wanted / (found.value - here.value - wanted), 0.1, 0.5))
    return here, t
