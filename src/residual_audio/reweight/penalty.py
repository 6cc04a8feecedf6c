"""What holds gains near 1: bounds on λ, ridge, lasso, and group lasso by unit.

With x = λ − 1 and weights w, everything is measured in u = w ∘ x:

    R(u) = ρ/2 ‖u‖² + α Σ_j |u_j| + γ Σ_g √n_g ‖u_g‖,   low ≤ λ ≤ high

w_j grows with what goes through component j, so that a gain counts by what it does to the latent as
well as by its number; the groups are the units, and a unit whose use does not outweigh γ stays
exactly at λ = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from residual_audio.errors import InputError
from residual_audio.types import FloatArray

BISECTIONS = 50


@dataclass(frozen=True)
class Bounds:
    """The least and the largest gain; 1, the identity, lies between."""

    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        if not self.low <= 1 <= self.high:
            raise InputError(
                f"gains between {self.low:g} and {self.high:g} leave out 1, the identity"
            )

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.low) or np.isfinite(self.high))

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]" if self.finite else "none"


UNBOUNDED = Bounds()


@dataclass(frozen=True)
class Penalty:
    """R of the gains of some units; strengths of 0 penalise nothing."""

    weights: FloatArray
    """[gain], positive."""
    owner: np.ndarray
    """[gain], number of the unit that a gain belongs to, 0 … n_units − 1."""
    bounds: Bounds = UNBOUNDED
    ridge: float = 0.0
    lasso: float = 0.0
    group: float = 0.0

    @cached_property
    def low(self) -> FloatArray:
        return (self.bounds.low - 1.0) * self.weights

    @cached_property
    def high(self) -> FloatArray:
        return (self.bounds.high - 1.0) * self.weights

    @cached_property
    def roots(self) -> FloatArray:
        """√n of every unit."""
        return np.sqrt(np.bincount(self.owner))

    @property
    def smooth(self) -> bool:
        return not (self.lasso or self.group or self.bounds.finite)

    def norms(self, u: FloatArray) -> FloatArray:
        """‖u_g‖ of every unit."""
        return np.sqrt(np.bincount(self.owner, u * u, minlength=len(self.roots)))

    def value(self, u: FloatArray) -> float:
        out = 0.5 * self.ridge * float(u @ u) + self.lasso * float(np.abs(u).sum())
        return out + self.group * float(self.roots @ self.norms(u))

    def gradient(self, u: FloatArray) -> FloatArray:
        """Of R where it is smooth; nothing is added for gains or units that stand at 1."""
        out = self.ridge * u + self.lasso * np.sign(u)
        if self.group:
            norms = self.norms(u)
            out = out + u * (self.group * self.roots / np.where(norms > 0, norms, 1.0))[self.owner]
        return out

    def curvature(self, u: FloatArray) -> FloatArray:
        """A diagonal that majorises the second derivative of R at u, for units that moved."""
        out = np.full(len(u), self.ridge)
        if self.group:
            norms = self.norms(u)
            out = out + (self.group * self.roots / np.where(norms > 0, norms, 1.0))[self.owner]
        return out

    def free(self, u: FloatArray) -> np.ndarray:
        """Which gains may move a little either way without meeting an edge or a kink."""
        found = (u > self.low) & (u < self.high)
        if self.lasso:
            found &= u != 0
        if self.group:
            found &= (self.norms(u) > 0)[self.owner]
        return found

    def prox(
        self, v: FloatArray, step: float | FloatArray, bisections: int = BISECTIONS
    ) -> FloatArray:
        """argmin ½ ‖u − v‖² / step + R(u) within the bounds; `step` is one number, or one a unit.

        Soft thresholds, then one factor s a unit: u = clip(s v) with s = ‖u‖ / (‖u‖ + τ), whose
        root is found by bisection where the bounds cut something off.
        """
        steps = np.broadcast_to(np.asarray(step, np.float64), self.roots.shape)
        steps = steps / (1.0 + steps * self.ridge)
        # v / (1 + step ρ), with the steps shortened alike
        v = v * (1.0 - steps * self.ridge)[self.owner]
        if self.lasso:
            v = np.sign(v) * np.maximum(np.abs(v) - (steps * self.lasso)[self.owner], 0.0)
        if not self.group:
            return np.clip(v, self.low, self.high)
        tau = steps * self.group * self.roots
        norms = self.norms(v)
        factor = np.maximum(1.0 - tau / np.maximum(norms, 1e-300), 0.0)
        u = v * factor[self.owner]
        cut = np.clip(u, self.low, self.high)
        changed = np.unique(self.owner[cut != u])
        for unit in changed:
            gains = self._members[unit]
            cut[gains] = _shrunk(
                v[gains], float(tau[unit]), self.low[gains], self.high[gains], bisections
            )
        return cut

    @cached_property
    def _members(self) -> list[np.ndarray]:
        """The gains of every unit."""
        order = np.argsort(self.owner, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.owner))[:-1])

    def residual(self, u: FloatArray, slope: FloatArray) -> float:
        """How far the optimality (KKT) conditions are from holding at u: max |u − prox(u − slope)|.

        0 exactly where −slope lies in the subdifferential of R and the bounds: stationary in free
        directions, ‖slope_g‖ ≤ γ √n_g in units that stay at 1, pointing outwards at a bound.
        """
        if self.smooth:
            return float(np.abs(slope + self.ridge * u).max(initial=0.0))
        return float(np.abs(u - self.prox(u - slope, 1.0)).max(initial=0.0))

    def awake(self, u: FloatArray, slope: FloatArray) -> np.ndarray:
        """Units that are not at 1, or would leave it along the slope."""
        excess = np.maximum(np.abs(slope) - self.lasso, 0.0) if self.lasso else slope
        return (self.norms(u) > 0) | (self.norms(excess) > self.group * self.roots)

    def identity_strength(self, slope: FloatArray) -> float:
        """The least γ for which all gains stay at 1, given the slope there."""
        return float((self.norms(slope) / self.roots).max())

    def at(self, gains: np.ndarray) -> Penalty:
        """The same on some of the gains, which are whole units."""
        _, owner = np.unique(self.owner[gains], return_inverse=True)
        return replace(self, weights=self.weights[gains], owner=owner)


def _shrunk(
    v: FloatArray, tau: float, low: FloatArray, high: FloatArray, bisections: int
) -> FloatArray:
    """clip(s v) of one unit with s = ‖clip(s v)‖ / (‖clip(s v)‖ + τ), the largest such s."""
    below, above = 0.0, 1.0
    for _ in range(bisections):
        middle = 0.5 * (below + above)
        part = np.minimum(np.maximum(middle * v, low), high)
        size = math.sqrt(part @ part)
        if size >= middle * (size + tau):
            below = middle
        else:
            above = middle
    return np.minimum(np.maximum(above * v, low), high)
