"""Gains fitted: on the direct path by the solver, or inside the network by gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from residual_audio.judge.answers import Judge
from residual_audio.models.joint import JointHead
from residual_audio.reweight.agreement import Agreement, choose_refit, other_part
from residual_audio.reweight.descent import Embed
from residual_audio.reweight.descent_search import Choice, Search, search_and_fit
from residual_audio.reweight.direct_loss import DirectLoss
from residual_audio.reweight.keep_in_place import (
    STRENGTHS,
    Cost,
    Held,
    KeepInPlace,
    held_in,
    joined_form,
)
from residual_audio.reweight.objectives import objective
from residual_audio.reweight.path import (
    AT_END,
    DEFAULT_STRENGTH,
    HeldOut,
    Judged,
    Regularity,
    StrengthPath,
    choose_strength,
)
from residual_audio.reweight.solver import Solution
from residual_audio.reweight.terms import DirectTerms

TermsFor = Callable[[np.ndarray], DirectTerms]
"""Training clips → terms of all clips, along axes that only those clips have decided."""


@dataclass(frozen=True)
class Lesson:
    """What to learn from: clips with their answers, and what is to be made small."""

    judge: Judge
    train: np.ndarray
    held_out: np.ndarray
    """Chooses strengths, settings and epochs; may be empty."""
    objective: str = "cross-entropy"
    """A name or a weighted mixture, as `parse_objective` reads it."""
    groups: Sequence[str] = ()
    """[clip]; none: every clip stands alone."""

    @property
    def everyone(self) -> np.ndarray:
        return np.sort(np.concatenate([self.train, self.held_out]))

    def loss(self, terms: DirectTerms, head: JointHead, rows: np.ndarray) -> DirectLoss:
        """The loss over these clips."""
        judge = self.judge.at(rows)
        return DirectLoss(terms.at(rows), head.from_latent, objective(self.objective, judge), judge)

    @property
    def named_groups(self) -> Sequence[str]:
        return self.groups or [str(i) for i in range(len(self.judge))]

    def chosen_by(self, terms: DirectTerms, head: JointHead) -> HeldOut:
        groups = [self.named_groups[i] for i in self.held_out]
        return HeldOut(self.loss(terms, head, self.held_out), groups)


@dataclass(frozen=True)
class Settled:
    """Direct-path gains with what decided them."""

    values: Tensor
    """λ as one vector."""
    terms: DirectTerms
    """Of all clips, along the axes that the gains act on."""
    strength: float
    """Of the penalty, as a share of the one that lets nothing move; infinite: nothing moved."""
    solution: Solution | None
    """None where nothing was to be solved."""
    judged: tuple[Judged, ...] = ()
    """The path on the held-out clips, strongest penalty first."""
    hold: float = 0.0
    """Strength of what holds the reference clips; infinite: nothing may move."""
    costs: tuple[Cost, ...] = field(default=())
    """What the gains that chose `hold` lost on held-out reference clips."""
    agreed: Agreement | None = None
    """How alike edits of two parts of the clips are, where that was asked."""

    @property
    def capped(self) -> bool:
        return self.solution is not None and not self.solution.converged

    @property
    def notes(self) -> dict[str, float | bool | str]:
        """For the record of what was fitted."""
        out: dict[str, float | bool | str] = {"strength": self.strength}
        if self.solution is not None:
            out |= {
                "residual": self.solution.residual,
                "evaluations": self.solution.evaluations,
                "converged": self.solution.converged,
            }
        if self.judged:
            # where only the hold let nothing move, the penalty had chosen otherwise
            same = [one for one in self.judged if one.strength == self.strength]
            chosen = same[0]
            out |= {
                "held_out_before": self.judged[0].loss,
                "held_out_loss": chosen.loss,
                "held_out_error": chosen.error,
                "held_out_top1_before": self.judged[0].right,
                "held_out_top1": chosen.right,
            }
        if self.agreed is not None:
            out |= {"refit": self.agreed.refit, "agreement": self.agreed.likeness}
        if self.costs:
            out["hold"] = self.hold
            out |= {f"lost on {cost.name}": cost.lost for cost in self.costs}
        return out


def fit_direct(
    terms_for: TermsFor,
    head: JointHead,
    lesson: Lesson,
    how: Regularity,
    keep: KeepInPlace | None = None,
) -> Settled:
    """λ from coordinates alone: strengths chosen on held-out clips, then solved on all clips."""
    first = terms = terms_for(lesson.train)
    path = StrengthPath(lesson.loss(terms, head, lesson.train), how)
    strength, judged = DEFAULT_STRENGTH[how.penalty], list[Judged]()
    if len(lesson.held_out):
        strength, judged = choose_strength(path, lesson.chosen_by(terms, head), how)
    agreed = None
    if judged and np.isfinite(strength) and how.chooses and how.agreement:
        part = other_part(lesson.train, lesson.held_out, lesson.named_groups)
        other = StrengthPath(lesson.loss(terms, head, part), how, path, strength)
        agreed = choose_refit(path, other, strength, terms.passing(), how.agreement)
        how = replace(how, refit=agreed.refit)
    hold, costs = 0.0, list[Cost]()
    if keep is not None and np.isfinite(strength):
        loss = lesson.loss(terms, head, lesson.train)
        hold, costs = _choose_hold(loss, held_in(keep.references, terms, head), keep, how, strength)
    if not np.isfinite(strength + hold):
        ones = torch.ones(terms.n_gains)
        return Settled(ones, terms, np.inf, None, tuple(judged), hold, tuple(costs))
    terms = terms_for(lesson.everyone)
    form = None
    if keep is not None:
        here = held_in(keep.references, terms, head)
        form = hold * joined_form(
            here, keep.hold, [np.arange(len(h.reference.judge)) for h in here]
        )
    loss = lesson.loss(terms, head, lesson.everyone).holding(form)
    # where the axes are the same, the choice has found a good place to begin
    whole = StrengthPath(loss, how, path, strength) if judged and terms is first else None
    found = (whole or StrengthPath(loss, how)).at(strength, AT_END)
    # 1 + x may leave the bounds by a rounding
    values = torch.from_numpy(1.0 + found.x).float().clamp(how.bounds.low, how.bounds.high)
    return Settled(values, terms, strength, found, tuple(judged), hold, tuple(costs), agreed)


def _choose_hold(
    loss: DirectLoss, held: Sequence[Held], keep: KeepInPlace, how: Regularity, strength: float
) -> tuple[float, list[Cost]]:
    """The weakest hold whose cost on held-out reference clips is surely allowed."""
    form = joined_form(held, keep.hold, [one.reference.fit for one in held])
    chosen: tuple[float, list[Cost]] = np.inf, [one.cost(np.zeros(len(form))) for one in held]
    path: StrengthPath | None = None
    for weight in STRENGTHS:
        path = StrengthPath(loss.holding(weight * form), how, path)
        x = path.at(strength).x
        costs = [one.cost(x) for one in held]
        if any(cost.at_most > keep.max_loss for cost in costs):
            break
        chosen = weight, costs
    return chosen


def fit_inside(
    embed: Embed, parameters: Sequence[Tensor], lesson: Lesson, search: Search
) -> Choice:
    """Fit an adapter where `embed` runs the encoder on any clip."""
    loss = objective(lesson.objective, lesson.judge)
    return search_and_fit(embed, parameters, loss, lesson.train, lesson.held_out, search)
