"""Choosing how strongly to penalise: a warm-started path of strengths, judged on held-out groups.

From the strength that keeps all gains at 1 downwards. Where the penalty chooses units, the chosen
ones are fitted again under a ridge of their own, the same for all strengths, so that a choice of
fewer units does not shrink them; how strong it ends up is for `agreement` to say. By the
one-standard-error rule the strongest penalty is taken whose held-out loss is within one standard
error (over groups) of the least; the identity is a candidate like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from residual_audio.errors import InputError
from residual_audio.reweight.direct_loss import DirectLoss, HeldPart
from residual_audio.reweight.objectives import Objective
from residual_audio.reweight.penalty import UNBOUNDED, Bounds, Penalty
from residual_audio.reweight.solver import Solution, Stopping, solve
from residual_audio.types import FloatArray

Kind = Literal["group", "lasso", "ridge"]
# The path need not be exact to be compared; what is kept is. The slope of a joint head with ReLUs
# jumps, which leaves optimality conditions open by some thousandths of the slope at 1.
ON_PATH, AT_END = Stopping(3e-2, 60, descent=1e-3), Stopping(1e-2, 300, descent=1e-4)
NEAR = 0.8
"""Units whose slope comes so near to what would move them are solved for at once."""
READABLE = Bounds(0.0, 4.0)


def check_agreement(demanded: float) -> None:
    """Refuse what is no cosine."""
    if not 0 <= demanded < 1:
        raise InputError(
            f"an agreement of {demanded:g} cannot be asked for: it is a cosine, from 0 (none) to "
            "just below 1"
        )


@dataclass(frozen=True)
class Regularity:
    """How gains are held near 1, and how the strength of that is chosen."""

    penalty: Kind = "group"
    """group: whole units stay at 1; lasso: single gains do; ridge: all move a little."""
    bounds: Bounds = READABLE
    strengths: tuple[float, ...] = ()
    """Descending, as shares of the strength that lets nothing move; none for those of the kind."""
    rule: Literal["one-standard-error", "best"] = "one-standard-error"
    refit: float = 0.3
    """The ridge of chosen gains, as a share of their root mean square slope at 1."""
    agreement: float = 0.9
    """The cosine that edits of two parts of the clips are to have: weaker ridges fit more and agree
    less. 0: `refit` is taken as it is."""

    def __post_init__(self) -> None:
        found = self.path
        if any(a <= b for a, b in pairwise(found)) or found[-1] < 0:
            raise InputError("strengths of a path are to fall, and not below 0")
        check_agreement(self.agreement)

    @property
    def path(self) -> tuple[float, ...]:
        return self.strengths or PATHS[self.penalty]

    @property
    def chooses(self) -> bool:
        """Whether some gains stay at 1, and the others are fitted again."""
        return self.penalty != "ridge"


PATHS: dict[Kind, tuple[float, ...]] = {
    "group": (0.5, 0.25, 0.12),
    "lasso": (0.5, 0.25, 0.12),
    "ridge": (1e-1, 3e-3, 1e-4),
}
DEFAULT_STRENGTH: dict[Kind, float] = {"group": 0.25, "lasso": 0.25, "ridge": 1e-2}
"""Where no clip can be spared to choose it."""
FREE = Regularity("ridge", UNBOUNDED, rule="best")


@dataclass(frozen=True)
class Judged:
    """One strength of the path on the held-out clips."""

    strength: float
    """Infinite: all gains at 1."""
    loss: float
    error: float
    """Its standard error over groups (jackknife)."""
    right: float
    """Share of clips whose best answer is right."""
    moved: int
    """Units."""


@dataclass(frozen=True)
class HeldOut:
    """Clips that choose, and the groups they come in."""

    loss: DirectLoss
    groups: Sequence[str]

    @property
    def objective(self) -> Objective:
        return self.loss.objective

    def judge(self, strength: float, x: FloatArray, moved: int) -> Judged:
        return self.judged_at(strength, self.loss.terms.shifted(x), moved)

    def judged_at(self, strength: float, latent: torch.Tensor, moved: int) -> Judged:
        """The same where the latents [clip, D] of the clips are known."""
        joint = self.joint(latent)
        value = float(self.objective(joint, torch.arange(len(joint))))
        error = standard_error(left_out(joint, self.groups, self.objective))
        measured = self.loss.judge.measure(joint, torch.arange(len(joint)), joint)
        return Judged(strength, value, error, float(measured["correct"].mean()), moved)

    @torch.no_grad()
    def joint(self, latent: torch.Tensor) -> torch.Tensor:
        return self.loss.from_latent(latent)


def left_out(joint: torch.Tensor, groups: Sequence[str], objective: Objective) -> FloatArray:
    """An objective over clips without one group at a time; nothing of fewer than three groups."""
    _, number = np.unique(np.asarray(groups), return_inverse=True)
    g = int(number.max()) + 1
    if g < 3:
        return np.zeros(0)
    left = []
    for one in range(g):
        keep = torch.as_tensor(np.flatnonzero(number != one))
        left.append(float(objective(joint[keep], keep)))
    return np.array(left)


def standard_error(left: FloatArray) -> float:
    """Of what was seen without one group at a time (jackknife); 0 of nothing."""
    g = len(left)
    return float(np.sqrt((g - 1) / g * np.sum((left - left.mean()) ** 2))) if g else 0.0


@dataclass(frozen=True)
class _Place:
    """Where a path stands: all gains under the penalty, and the chosen ones fitted again."""

    full: FloatArray
    kept: FloatArray


class StrengthPath:
    """Solutions of one loss along falling strengths, each begun where the last one ended."""

    def __init__(
        self,
        loss: DirectLoss,
        how: Regularity,
        begun: StrengthPath | None = None,
        strength: float | None = None,
    ) -> None:
        """`begun`: a path of the same gains, from whose end (or a strength) this one goes on."""
        self._loss, self._how = loss, how
        n = loss.terms.n_gains
        self._bare = Penalty(loss.terms.weights(), loss.terms.owner(), how.bounds)
        self._slope = loss(np.zeros(n))[1] / self._bare.weights
        self._unit = float(np.abs(self._slope).max(initial=0.0))
        if how.penalty == "group":
            self._top = self._bare.identity_strength(self._slope)
        elif how.penalty == "lasso":
            self._top = self._unit
        else:
            self._top = float(np.linalg.norm(self._slope)) / n**0.5
        self._seen: dict[float | None, _Place] = {None: _Place(np.zeros(n), np.zeros(n))}
        if begun is not None:
            last = next(reversed(begun._seen))
            self._seen[None] = begun._seen[last if strength is None else strength]

    def holding(self, held: tuple[HeldPart, ...], hold: float, how: Regularity) -> StrengthPath:
        """The same with something held in place, begun where this one ended."""
        return StrengthPath(self._loss.holding(held, hold), how, self)

    def at(self, strength: float, stop: Stopping = ON_PATH) -> Solution:
        """The gains at a strength, as a share of the one that lets nothing move."""
        stop = replace(stop, unit=self._unit)
        if self._how.penalty == "ridge":
            # what a weaker ridge changes is small against the slope at 1
            stop = replace(stop, tolerance=0.1 * stop.tolerance)
        before = self._seen[next(reversed(self._seen))]
        found = self._solved(self._penalty(strength), before.full, stop)
        place = _Place(found.x, found.x)
        if self._how.chooses:
            found = self._refitted(place.full, before.kept, self._how.refit, stop)
            place = replace(place, kept=found.x)
        self._seen[strength] = place
        return found

    def chosen(self, strength: float) -> FloatArray:
        """All gains under the penalty of a strength, not yet fitted again."""
        if strength in self._seen:
            return self._seen[strength].full
        stop = replace(ON_PATH, unit=self._unit)
        before = self._seen[next(reversed(self._seen))]
        return self._solved(self._penalty(strength), before.full, stop).x

    def refitted(self, chosen: FloatArray, start: FloatArray, refit: float) -> FloatArray:
        """The chosen gains under another ridge than that of the path, begun at `start`."""
        return self._refitted(chosen, start, refit, replace(AT_END, unit=self._unit)).x

    def _penalty(self, strength: float) -> Penalty:
        amount = strength * self._top
        if self._how.penalty == "group":
            return replace(self._bare, group=amount)
        if self._how.penalty == "lasso":
            return replace(self._bare, lasso=amount)
        return replace(self._bare, ridge=amount)

    def _solved(self, penalty: Penalty, start: FloatArray, stop: Stopping) -> Solution:
        """Over the units in play, until none of the others would leave 1."""
        if not penalty.group:
            return solve(self._loss, penalty, start, stop)
        x, slope, evaluations = start, self._slope_at(start), 1
        while True:
            playing = penalty.awake(penalty.weights * x, slope / NEAR)
            gains = np.flatnonzero(playing[penalty.owner])
            found = self._solve_only(gains, penalty, x, stop)
            x, slope = found.x, self._slope_at(found.x)
            evaluations += found.evaluations + 1
            missing = penalty.awake(penalty.weights * x, slope * (1 - stop.tolerance)) & ~playing
            if not missing.any() or evaluations >= stop.evaluations:
                residual = penalty.residual(penalty.weights * x, slope) / self._unit
                converged = found.converged and not missing.any()
                return replace(
                    found,
                    x=x,
                    residual=residual,
                    evaluations=evaluations,
                    converged=converged,
                )

    def _slope_at(self, x: FloatArray) -> FloatArray:
        return self._loss(x)[1] / self._bare.weights if x.any() else self._slope

    def _solve_only(
        self, gains: np.ndarray, penalty: Penalty, start: FloatArray, stop: Stopping
    ) -> Solution:
        """These gains, the others at 1."""
        x = np.zeros_like(start)
        if not len(gains):
            return Solution(x, np.nan, 0.0, 0, True)
        found = solve(self._loss.only(gains), penalty.at(gains), start[gains], stop)
        x[gains] = found.x
        return replace(found, x=x)

    def _refitted(
        self, full: FloatArray, before: FloatArray, refit: float, stop: Stopping
    ) -> Solution:
        """The chosen gains alone, under a ridge."""
        there = full != 0
        if self._how.penalty == "group":
            there = (self._bare.norms(full) > 0)[self._bare.owner]
        gains = np.flatnonzero(there)
        start = np.where(there, np.where(before != 0, before, full), 0.0)
        steep = float(np.linalg.norm(self._slope[gains])) / max(len(gains), 1) ** 0.5
        return self._solve_only(gains, replace(self._bare, ridge=refit * steep), start, stop)


def choose_strength(
    path: StrengthPath, held_out: HeldOut, how: Regularity
) -> tuple[float, list[Judged]]:
    """The strength that held-out clips choose (infinite: the identity), and what they said."""
    n = held_out.loss.terms.n_gains
    owner = held_out.loss.terms.owner()
    judged = [held_out.judge(np.inf, np.zeros(n), 0)]
    for strength in how.path:
        x = path.at(strength).x
        judged.append(held_out.judge(strength, x, len(np.unique(owner[x != 0]))))
        best = min(judged, key=lambda one: one.loss)
        if all(one.loss > best.loss + best.error for one in judged[-2:]):
            break  # the rest of the path only fits the training clips better
    best = min(judged, key=lambda one: one.loss)
    if how.rule == "best":
        return best.strength, judged
    return next(one for one in judged if one.loss <= best.loss + best.error).strength, judged
