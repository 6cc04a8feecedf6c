"""Gains fitted: on the direct path by the solver, or inside the network by gradient descent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from residual_audio.judge.answers import Judge
from residual_audio.models.joint import JointHead
from residual_audio.reweight.agreement import Agreement, choose_refit, other_part
from residual_audio.reweight.descent import Embed, Units
from residual_audio.reweight.descent_search import (
    Choice,
    HeldOutClips,
    Search,
    search_and_fit,
)
from residual_audio.reweight.direct_loss import DirectLoss
from residual_audio.reweight.keep_in_place import (
    STRENGTHS,
    Cost,
    Held,
    Hold,
    KeepInPlace,
    drifts,
    held_in,
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
from residual_audio.types import FloatArray

HELD_RIDGE = 1e-3
"""Strength of the ridge where references hold the gains, as a share of the one that lets nothing
move: it only decides what neither clips nor references do."""


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
    """The path of penalties, or of holds, on the held-out clips, the strongest first."""
    said: Judged | None = None
    """What held-out clips said of the one that was taken."""
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
        if self.said is not None:
            # where the hold lets nothing move, nothing is changed
            chosen = self.said if self.solution is not None else self.judged[0]
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
    terms: DirectTerms,
    head: JointHead,
    lesson: Lesson,
    how: Regularity,
    keep: KeepInPlace | None = None,
) -> Settled:
    """λ from coordinates alone: strengths chosen on held-out clips, then solved on all clips."""
    path = StrengthPath(lesson.loss(terms, head, lesson.train), how)
    strength, judged = DEFAULT_STRENGTH[how.penalty], list[Judged]()
    chooser = lesson.chosen_by(terms, head) if len(lesson.held_out) else None
    if keep is not None and not how.chooses:
        strength = HELD_RIDGE
    elif chooser is not None:
        strength, judged = choose_strength(path, chooser, how)
    agreed = None
    if judged and np.isfinite(strength) and how.chooses and how.agreement:
        part = other_part(lesson.train, lesson.held_out, lesson.named_groups)
        other = StrengthPath(lesson.loss(terms, head, part), how, path, strength)
        agreed = choose_refit(path, other, strength, terms.passing(), how.agreement)
        how = replace(how, refit=agreed.refit)
    hold, costs = 0.0, tuple[Cost, ...]()
    said = next((one for one in judged if one.strength == strength), None)
    if keep is not None and np.isfinite(strength):
        held = held_in(keep.references, terms, head)
        held_path = HoldPath(path, how, strength, held, keep.hold)
        hold, costs, seen = _choose_hold(held_path, keep.max_loss, chooser)
        if not judged:
            judged, said = seen, next((one for one in seen if one.strength == hold), None)
        strength = strength if np.isfinite(hold) else np.inf
    if not np.isfinite(strength):
        ones = torch.ones(terms.n_gains)
        return Settled(ones, terms, np.inf, None, tuple(judged), said, hold, costs)
    loss = lesson.loss(terms, head, lesson.everyone)
    if keep is not None:
        loss = loss.holding(drifts(held, keep.hold, everyone=True), hold)
        path = held_path.paths[hold]
    # the choice has found a good place to begin
    found = StrengthPath(loss, how, path, strength if judged else None).at(strength, AT_END)
    # 1 + x may leave the bounds by a rounding
    values = torch.from_numpy(1.0 + found.x).float().clamp(how.bounds.low, how.bounds.high)
    return Settled(values, terms, strength, found, tuple(judged), said, hold, costs, agreed)


@dataclass(frozen=True)
class HoldPath:
    """Gains under references that are held weaker and weaker."""

    begin: StrengthPath
    """Of the same loss with nothing held."""
    how: Regularity
    strength: float
    """Of the penalty."""
    held: Sequence[Held]
    hold: Hold
    paths: dict[float, StrengthPath] = field(default_factory=dict)
    """Those that were followed, by how strongly references are held."""

    def __iter__(self) -> Iterator[tuple[float, FloatArray]]:
        """How strongly they are held, and λ − 1 under it."""
        parts, last = drifts(self.held, self.hold, everyone=False), self.begin
        for weight in STRENGTHS:
            last = self.paths[weight] = last.holding(parts, weight, self.how)
            yield weight, last.at(self.strength).x


def _choose_hold(
    path: HoldPath, max_loss: float, chooser: HeldOut | None
) -> tuple[float, tuple[Cost, ...], list[Judged]]:
    """Of the holds whose cost on held-out reference clips is surely allowed, the one that held-out
    clips here are best with; the weakest, where none can be spared to say."""
    still = np.zeros(path.held[0].terms.n_gains)
    chosen = np.inf, tuple(one.cost(still) for one in path.held)
    judged = [] if chooser is None else [chooser.judge(np.inf, still, 0)]
    for weight, x in path:
        costs = tuple(one.cost(x) for one in path.held)
        if any(cost.at_most > max_loss for cost in costs):
            break
        if chooser is not None:
            judged.append(chooser.judge(weight, x, len(path.held[0].terms.units)))
            if judged[-1].loss >= judged[-2].loss:
                break  # what is held more loosely only fits the training clips better
        chosen = weight, costs
    return *chosen, judged


def fit_inside(
    embed: Embed, parameters: Sequence[Tensor], lesson: Lesson, search: Search, units: Units = ()
) -> Choice:
    """Fit an adapter where `embed` runs the encoder on any clip."""
    loss = objective(lesson.objective, lesson.judge)
    groups = [lesson.named_groups[i] for i in lesson.held_out]
    held_out = HeldOutClips(lesson.held_out, groups)
    return search_and_fit(embed, parameters, loss, lesson.train, held_out, search, units)
