"""What gains are fitted to, as functions of joint embeddings [clip, d] of a batch.

With labels or captions: cross-entropy against the texts at the model's own temperature, or the
symmetric contrastive loss. Without: entropy of the answers, modality gap, spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge

Objective = Callable[[Tensor, Tensor], Tensor]
"""(joint embeddings of a batch, their clip numbers) → a number to make small."""


def answers(judge: Judge, joint: Tensor, clips: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [clip, text] and which are right: all texts, or (captions) those of these clips."""
    logits = judge.logits(joint)
    positive = judge.positive[clips].to(joint.device)
    if not judge.own:
        return logits, positive
    used = positive.any(0)
    return logits[:, used], positive[:, used]


def cross_entropy(judge: Judge) -> Objective:
    """−log probability of the right texts among all texts."""

    def loss(joint: Tensor, clips: Tensor) -> Tensor:
        logits, positive = answers(judge, joint, clips)
        right = logits.masked_fill(~positive, -torch.inf).logsumexp(-1)
        return (logits.logsumexp(-1) - right).mean()

    return loss


def contrastive(judge: Judge) -> Objective:
    """Symmetric InfoNCE within the batch; texts of one clip are not each other's negatives."""

    def loss(joint: Tensor, clips: Tensor) -> Tensor:
        positive = judge.positive[clips].to(joint.device)
        used = positive.any(0)
        logits = judge.logits(joint)[:, used]
        positive = positive[:, used]
        hidden = logits.masked_fill(~positive, -torch.inf)
        to_text = (logits.logsumexp(1) - hidden.logsumexp(1)).mean()
        to_audio = (logits.logsumexp(0) - hidden.logsumexp(0)).mean()
        return (to_text + to_audio) / 2

    return loss


def answer_entropy(judge: Judge, balance: float = 1.0) -> Objective:
    """Mean entropy of the answers less `balance` times the entropy of the mean answer.

    Entropy alone is least when every clip gets the same answer; the second term asks for variety.
    No label is used: it may be fitted on the very clips that are tested.
    """

    def loss(joint: Tensor, clips: Tensor) -> Tensor:
        p = answers(judge, joint, clips)[0].softmax(-1)
        sure = -(p * p.clamp(min=1e-12).log()).sum(-1).mean()
        mean = p.mean(0)
        varied = -(mean * mean.clamp(min=1e-12).log()).sum()
        return sure - balance * varied

    return loss


def modality_gap(judge: Judge) -> Objective:
    """‖mean audio − mean text‖² of unit vectors."""

    def loss(joint: Tensor, clips: Tensor) -> Tensor:
        texts = judge.texts[judge.positive[clips].any(0)] if judge.own else judge.texts
        gap = F.normalize(joint, dim=-1).mean(0) - texts.to(joint).mean(0)
        return gap.square().sum()

    return loss


def spread(temperature: float = 2.0) -> Objective:
    """Uniformity: log mean exp(−t ‖x − y‖²) over pairs of the batch; lower is more spread out."""

    def loss(joint: Tensor, clips: Tensor) -> Tensor:
        unit = F.normalize(joint, dim=-1)
        if len(unit) < 2:
            return unit.sum() * 0.0
        squared = 2 - 2 * (unit @ unit.T)
        off = ~torch.eye(len(unit), dtype=torch.bool, device=unit.device)
        return (-temperature * squared[off]).logsumexp(0) - math.log(int(off.sum()))

    return loss


OBJECTIVES: dict[str, Callable[[Judge], Objective]] = {
    "cross-entropy": cross_entropy,
    "contrastive": contrastive,
    "entropy": answer_entropy,
    "gap": modality_gap,
    "spread": lambda judge: spread(),
}


def parse_objective(text: str) -> dict[str, float]:
    """Read `cross-entropy`, or a weighted mixture like `entropy:1,gap:0.5`."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        if name not in OBJECTIVES:
            raise InputError(f"'{name}' is no objective: choose among {', '.join(OBJECTIVES)}")
        try:
            found[name] = float(weight or 1)
        except ValueError as error:
            raise InputError(f"'{part}' has a weight that is not a number") from error
    return found


def objective(text: str, judge: Judge) -> Objective:
    """A named objective, or the weighted sum of several (see `parse_objective`)."""
    parts = [(weight, OBJECTIVES[name](judge)) for name, weight in parse_objective(text).items()]

    def loss(joint: Tensor, clips: Tensor) -> Tensor:
        return torch.stack([weight * part(joint, clips) for weight, part in parts]).sum()

    return loss
