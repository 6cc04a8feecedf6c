"""Few units, bounded gains, and edits that two parts of the clips agree on.

1. *Which units*: those along whose gains the loss falls most steeply at λ = 1. All others stay
   exactly at 1. How many is said by held-out groups: the fewest of a few numbers, each twice the
   last, whose held-out loss is within one standard error of the least. The error is that of the
   difference, group by group: what all numbers of units find hard decides nothing.
2. *Their gains*, with the components they act on (see `uncorrelated`), are fitted at once within
   the bounds (see `turned_solver`).
3. *How strongly they are held*: a weak ridge fits the clips at hand, and another edit to other
   clips of the same kind. The edits of two parts of the training clips are compared, each without
   some groups that the other has, and the ridge is made stronger for as long as they do not agree
   as is demanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from residual_audio.errors import InputError
from residual_audio.models.joint import JointHead
from residual_audio.reweight.agreement import Agreement, other_part
from residual_audio.reweight.direct_loss import DirectLoss
from residual_audio.reweight.edit_size import likeness
from residual_audio.reweight.fitting import Lesson, Settled
from residual_audio.reweight.keep_in_place import Drift
from residual_audio.reweight.path import (
    READABLE,
    HeldOut,
    Judged,
    check_agreement,
    left_out,
    standard_error,
)
from residual_audio.reweight.penalty import Bounds
from residual_audio.reweight.solver import Solution
from residual_audio.reweight.terms import DirectTerms
from residual_audio.reweight.turned import Roots, Shape, TurnedEdit, along_axes
from residual_audio.reweight.turned_fit import AT_END, ON_THE_WAY, TurnedFit, latents_under
from residual_audio.reweight.turned_solver import TurnedSolution

FIRST = 0.1
"""The ridge that edits begin under, as a share of the root mean square slope at λ = 1."""
STRONGER, WEAKER = (0.3, 1.0, 4.0), (0.03, 0.01)
UNJUDGED = 1.0
"""The ridge where no clip can be spared to say which."""
LEAST = 8
"""So many units may always move: of three heads a share is none."""


@dataclass(frozen=True)
class Few:
    """How few units move, and how their gains are held."""

    bounds: Bounds = READABLE
    share: float = 0.32
    """Of the units, at most so many move, or eight where that is more."""
    agreement: float = 0.9
    """The cosine that edits of two parts of the clips are to have; 0: no such demand, and the ridge
    is the one with the least held-out loss."""
    ridge: float | None = None
    """How strongly gains are held, where nothing is to be chosen: then the whole share moves."""
    shape: Shape = "symmetric"
    """Axes are found together with the gains, given, or there is one gain a unit."""

    def __post_init__(self) -> None:
        check_agreement(self.agreement)
        if not 0 < self.share <= 1:
            raise InputError(f"{self.share:g} is no share of the units: from above 0 to 1")
        if self.ridge is not None and self.ridge <= 0:
            raise InputError(f"a ridge of {self.ridge:g} holds nothing: give a number above 0")

    def numbers(self, n_units: int) -> list[int]:
        """Of units that may move, the fewest first."""
        most = min(n_units, max(LEAST, int(self.share * n_units)))
        return sorted({max(1, round(most / 2**i)) for i in range(4)})

    def fit(
        self, loss: DirectLoss, head: JointHead, roots: Roots, held: Sequence[Drift] = ()
    ) -> TurnedFit:
        """Edits of the clips of a loss, reference clips held beside them."""
        return TurnedFit(loss, head, roots, self.shape, self.bounds, held)


def most_worth(loss: DirectLoss, head: JointHead, n: int, how: Few) -> list[int]:
    """The numbers of the units that would be chosen from these clips."""
    fit = how.fit(loss, head, Roots.of(loss.terms))
    return [int(unit) for unit in fit.units(n)]


def fit_few(terms: DirectTerms, head: JointHead, lesson: Lesson, how: Few) -> Settled:
    """Gains of few units: how many, and how strongly held, is chosen on held-out clips; then all
    clips are fitted."""
    if not terms.keep_mean or terms.whole.shape[2]:
        raise InputError("few units: their mean is to be kept, with a gain a component")
    roots = Roots.of(terms.at(lesson.everyone))
    n, judged, agreed = how.numbers(len(terms.units))[-1], list[Judged](), None
    ridge, start = how.ridge or UNJUDGED, None
    if len(lesson.held_out) and how.ridge is None:
        part = how.fit(lesson.loss(terms, head, lesson.train), head, roots)
        chooser = lesson.chosen_by(terms, head)
        n, start, judged = _choose_number(part, chooser, how.numbers(len(terms.units)))
        ridge = FIRST
        if start is not None and how.agreement:
            rest = other_part(lesson.train, lesson.held_out, lesson.named_groups)
            other = how.fit(lesson.loss(terms, head, rest), head, roots)
            agreed = _agreed((part, other), n, start, terms, how.agreement)
            ridge = agreed.refit
        elif start is not None:
            ridge, start = _best(part, chooser, n, start, judged)
    said = next((one for one in reversed(judged) if one.moved == n), None)
    if not n:
        ones = torch.ones(terms.n_gains)
        return Settled(ones, terms, np.inf, None, tuple(judged), said)
    every = how.fit(lesson.loss(terms, head, lesson.everyone), head, roots)
    found = every.solve(every.units(n), ridge, start, AT_END)
    settled = settle(terms, roots, found, how.bounds)
    return replace(settled, strength=ridge, judged=tuple(judged), said=said, agreed=agreed)


def settle(terms: DirectTerms, roots: Roots, found: TurnedSolution, bounds: Bounds) -> Settled:
    """What was found, as gains along axes of its own."""
    along, x = along_axes(terms, roots.plain(found.edit))
    solution = Solution(x, found.value, found.residual, found.evaluations, found.converged)
    # 1 + x may leave the bounds by a rounding
    values = torch.from_numpy(1.0 + x).float().clamp(bounds.low, bounds.high)
    return Settled(values, along, np.inf, solution)


def one_gain_a_unit(found: Settled, coarse: DirectTerms) -> Settled:
    """What was fitted with scalar matrices, as gains of whole contributions."""
    first = np.cumsum([0, *found.terms.sizes])[:-1]
    values = torch.cat([found.values[first], found.values[sum(found.terms.sizes) :]])
    return replace(found, values=values, terms=coarse)


def _choose_number(
    part: TurnedFit, chooser: HeldOut, numbers: Sequence[int]
) -> tuple[int, TurnedEdit | None, list[Judged]]:
    """How many units move, with their edit; 0: none, as the identity does as well."""
    latents, edits = [chooser.loss.terms.here], list[TurnedEdit | None]([None])
    judged = [chooser.judged_at(np.inf, latents[0], 0)]
    for n in numbers:
        found = part.solve(part.units(n), FIRST, edits[-1], ON_THE_WAY).edit
        latents.append(latents_under(found, chooser.loss.terms, part.clips.roots))
        edits.append(found)
        judged.append(chooser.judged_at(FIRST, latents[-1], n))
    best = min(range(len(judged)), key=lambda i: judged[i].loss)
    left = [left_out(chooser.joint(at), chooser.groups, chooser.objective) for at in latents]
    # the best is no worse than itself
    i = next(
        i
        for i, one in enumerate(judged)
        if one.loss - judged[best].loss <= standard_error(left[i] - left[best])
    )
    return judged[i].moved, edits[i], judged


def _agreed(
    parts: tuple[TurnedFit, TurnedFit],
    n: int,
    start: TurnedEdit,
    terms: DirectTerms,
    demanded: float,
) -> Agreement:
    """The weakest ridge for which the edits of both parts, each of units of its own, have the
    cosine that is demanded, or the strongest there is."""
    edits = [start, start]
    for ridge in (FIRST, *STRONGER):
        for i, part in enumerate(parts):
            if ridge > FIRST or i:  # the first part has been fitted so
                edits[i] = part.solve(part.units(n), ridge, edits[i], ON_THE_WAY).edit
        made = []
        for part, edit in zip(parts, edits, strict=True):
            along, x = along_axes(terms, part.clips.roots.plain(edit))
            made.append(along.gains(torch.from_numpy(1.0 + x)))
        found = Agreement(ridge, likeness(*made))
        if found.likeness >= demanded:
            break
    return found


def _best(
    part: TurnedFit, chooser: HeldOut, n: int, start: TurnedEdit, judged: list[Judged]
) -> tuple[float, TurnedEdit]:
    """The ridge with the least held-out loss: weaker ones are tried for as long as it falls, or
    else stronger ones."""
    best, ridge = next(one for one in judged if one.moved == n), FIRST
    for others in (WEAKER, STRONGER):
        for other in others:
            edit = part.solve(part.units(n), other, start, ON_THE_WAY).edit
            seen = latents_under(edit, chooser.loss.terms, part.clips.roots)
            found = chooser.judged_at(other, seen, n)
            if found.loss >= best.loss:
                break
            judged.append(found)
            best, ridge, start = found, other, edit
        if ridge != FIRST:
            break
    return ridge, start
