"""Holding in place what a model does elsewhere, while gains are fitted here.

Reference clips of other data are looked at through the same gains. What the gains do to them is
held by a quadratic form, in the metric of their answers (twice the KL divergence) or of their
embeddings (squared distance), linearised where they stand:

    ½ κ x' H x,   H = (a'a / n) ∘ (Φ G Φ')    with a, G of the reference clips

so that any number of reference clips costs one matrix. κ is lowered from infinity (nothing moves)
for as long as the accuracy that held-out reference clips lose stays below what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from residual_audio.direct.contributions import Contributions
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import JointHead
from residual_audio.reweight.direct_loss import answer_metric, embedding_metric
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.types import FloatArray

Hold = Literal["answers", "embeddings"]
STRENGTHS = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
"""In units of the loss: nats for each unit of KL divergence or of half a squared distance."""
# a loss counts as kept within bounds when its upper 95% limit does
SURE = 1.645


@dataclass(frozen=True)
class Reference:
    """Clips of another run of the same model, and the answers they should keep giving."""

    name: str
    contributions: Contributions
    judge: Judge
    fit: np.ndarray
    held_out: np.ndarray
    """Whole groups, on which the loss is measured."""
    groups: Sequence[str]


@dataclass(frozen=True)
class KeepInPlace:
    """What may be lost elsewhere, and in which sense things are held in place."""

    references: tuple[Reference, ...]
    max_loss: float = 0.03
    """Share of reference clips whose right answer may be lost, net."""
    hold: Hold = "answers"


@dataclass(frozen=True)
class Cost:
    """Accuracy lost on the held-out clips of one reference."""

    name: str
    before: float
    after: float
    error: float
    """Standard error of the difference, over groups."""
    n: int

    @property
    def lost(self) -> float:
        return self.before - self.after

    @property
    def at_most(self) -> float:
        """The upper 95% limit (one-sided) of what is lost."""
        return self.lost + SURE * self.error


@dataclass(frozen=True)
class Held:
    """A reference in the coordinates of the gains that are being fitted."""

    reference: Reference
    terms: DirectTerms
    head: JointHead

    def form(self, rows: np.ndarray, hold: Hold) -> FloatArray:
        """H over these clips: [gain, gain]."""
        here = self.terms.at(rows)
        some = here.base[:: max(1, len(here.base) // 256)]
        if hold == "answers":
            return here.energy(answer_metric(some, self.head.from_latent, self.reference.judge))
        return here.energy(embedding_metric(some, self.head.from_latent))

    def cost(self, x: FloatArray) -> Cost:
        """What gains of 1 + x lose on the held-out clips."""
        rows = self.reference.held_out
        here, judge = self.terms.at(rows), self.reference.judge.at(rows)
        groups = [self.reference.groups[i] for i in rows]
        return cost_of(
            self.reference.name, judge, self.head.from_latent, (here.base, here.shifted(x)), groups
        )


def held_in(references: Sequence[Reference], like: DirectTerms, head: JointHead) -> list[Held]:
    """The references along the axes of the gains that are fitted."""
    return [
        Held(
            reference,
            direct_terms(
                reference.contributions,
                like.spectra,
                keep_mean=like.keep_mean,
                mean_gains=bool(len(like.means)),
            ),
            head,
        )
        for reference in references
    ]


def joined_form(held: Sequence[Held], hold: Hold, rows: Sequence[np.ndarray]) -> FloatArray:
    """H of all references together, over these clips of each."""
    return np.sum([one.form(r, hold) for one, r in zip(held, rows, strict=True)], axis=0)


@torch.no_grad()
def cost_of(
    name: str,
    judge: Judge,
    from_latent: Callable[[torch.Tensor], torch.Tensor],
    latents: tuple[torch.Tensor, torch.Tensor],
    groups: Sequence[str],
) -> Cost:
    """Accuracy with latents before and after, and the standard error of their difference."""
    right = []
    for latent in latents:
        joint = from_latent(latent)
        measured = judge.measure(joint, torch.arange(len(joint)), joint)
        right.append(measured["correct"].numpy().astype(np.float64))
    before, after = right
    _, number = np.unique(np.asarray(groups), return_inverse=True)
    n, g = len(before), int(number.max()) + 1
    by_group = np.bincount(number, (before - after) - (before - after).mean())
    # one flipped answer more is never excluded by the clips that happen to be there
    error = np.sqrt(max((by_group**2).sum() * g / max(g - 1, 1), 1.0)) / n
    return Cost(name, float(before.mean()), float(after.mean()), float(error), n)
