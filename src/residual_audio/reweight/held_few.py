"""Edits that turn while references are held in place.

The hold is strengthened, from one that lets nearly everything move, until surely no more answers
about held-out reference clips change than may be lost; then for as long as held-out clips here gain
by it. Strongly held edits are found from loosely held ones, which are quick to find.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from residual_audio.models.joint import JointHead
from residual_audio.reweight.few import FIRST, Few, settle
from residual_audio.reweight.fitting import Lesson, Settled
from residual_audio.reweight.keep_in_place import Cost, Held, KeepInPlace, drifts, held_in
from residual_audio.reweight.path import HeldOut, Judged
from residual_audio.reweight.terms import DirectTerms
from residual_audio.reweight.turned import Roots, TurnedEdit
from residual_audio.reweight.turned_fit import AT_END, ON_THE_WAY, TurnedFit, latents_under

HOLDS = tuple(2.0**i for i in range(13))
"""In units of the loss, as `STRENGTHS` of `keep_in_place`; the loosest first."""
STRONG = 32.0
"""From here on the ridge grows with the hold: few reference clips, however strongly they are held,
leave ways open that others of their kind use, and in the end nothing is to move."""


def ridge_under(hold: float, ridge: float) -> float:
    """The ridge that goes with a hold."""
    return ridge * max(1.0, hold / STRONG)


def held_edits(
    part: TurnedFit, units: torch.Tensor, ridge: float
) -> Iterator[tuple[float, TurnedEdit]]:
    """How strongly references are held, and the edit under it."""
    edit = None
    for hold in HOLDS:
        edit = part.solve(units, ridge_under(hold, ridge), edit, ON_THE_WAY, hold).edit
        yield hold, edit


def fit_held_few(
    terms: DirectTerms, head: JointHead, lesson: Lesson, how: Few, keep: KeepInPlace
) -> Settled:
    """Gains of the units that are worth most, held by references as strongly as these need it."""
    roots = Roots.of(terms.at(lesson.everyone))
    n, ridge = how.numbers(len(terms.units))[-1], how.ridge or FIRST
    held = held_in(keep.references, terms, head)
    loss = lesson.loss(terms, head, lesson.train)
    part = how.fit(loss, head, roots, drifts(held, keep.hold, everyone=False))
    chooser = lesson.chosen_by(terms, head) if len(lesson.held_out) else None
    path = _Path(held, chooser, roots)
    hold, start, costs = path.choose(held_edits(part, part.units(n), ridge), keep.max_loss, n)
    judged = tuple(path.judged)
    if start is None:
        ones = torch.ones(terms.n_gains)
        return Settled(ones, terms, np.inf, None, judged, next(iter(judged), None), np.inf, costs)
    loss, ridge = lesson.loss(terms, head, lesson.everyone), ridge_under(hold, ridge)
    every = how.fit(loss, head, roots, drifts(held, keep.hold, everyone=True))
    found = every.solve(every.units(n), ridge, start, AT_END, hold)
    settled = settle(terms, roots, found, how.bounds)
    said = next((one for one in judged if one.strength == hold), None)
    return replace(settled, strength=ridge, judged=judged, said=said, hold=hold, costs=tuple(costs))


class _Path:
    """What held-out clips, here and of the references, say of edits."""

    def __init__(self, held: Sequence[Held], chooser: HeldOut | None, roots: Roots) -> None:
        self._held, self._chooser, self._roots = held, chooser, roots
        self._there = [one.terms.at(one.reference.held_out) for one in held]
        self.judged: list[Judged] = []
        if chooser is not None:
            self.judged.append(chooser.judged_at(np.inf, chooser.loss.terms.here, 0))

    def choose(
        self, edits: Iterator[tuple[float, TurnedEdit]], max_loss: float, n: int
    ) -> tuple[float, TurnedEdit | None, tuple[Cost, ...]]:
        """The hold, its edit and what it costs; infinite: none is allowed, or better than none."""
        still = tuple(one.cost_at(at.here) for one, at in zip(self._held, self._there, strict=True))
        chosen: tuple[float, TurnedEdit | None, tuple[Cost, ...]] = (np.inf, None, still)
        least = self.judged[0].loss if self.judged else np.inf
        for hold, edit in edits:
            costs = self._costs(edit)
            allowed = all(cost.at_most <= max_loss for cost in costs)
            loss = self._loss(hold, edit, n)
            if allowed and loss >= least and chosen[1] is not None:
                break  # what is held more strongly is further from what was learned here
            if allowed and loss < least:
                chosen, least = (hold, edit, costs), loss
            if allowed and self._chooser is None:
                return hold, edit, costs
        return chosen

    def _costs(self, edit: TurnedEdit) -> tuple[Cost, ...]:
        return tuple(
            one.cost_at(latents_under(edit, there, self._roots))
            for one, there in zip(self._held, self._there, strict=True)
        )

    def _loss(self, hold: float, edit: TurnedEdit, n: int) -> float:
        if self._chooser is None:
            return 0.0
        seen = latents_under(edit, self._chooser.loss.terms, self._roots)
        self.judged.append(self._chooser.judged_at(hold, seen, n))
        return self.judged[-1].loss
