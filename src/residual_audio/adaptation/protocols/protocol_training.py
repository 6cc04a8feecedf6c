"""λ trained as a protocol says: epochs over shuffled batches, and the rule that stops them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from residual_audio.adaptation.protocols.protocol_recipe import Training
from residual_audio.judge.answers import Judge
from residual_audio.reweight.descent import Embed
from residual_audio.reweight.objectives import cross_entropy

State = list[Tensor]


@dataclass
class Trained:
    """What training left behind."""

    epochs: int
    """That gave the parameters which are kept; 0: the start."""
    held_out_loss: float = float("nan")
    marks: dict[int, State] = field(default_factory=dict)
    """Epoch → parameters after it, for those that were asked for."""
    capped: bool = False
    """The best epoch was the last one allowed."""


def train(
    embed: Embed,
    parameters: Sequence[Tensor],
    judge: Judge,
    rows: np.ndarray,
    held_out: np.ndarray,
    how: Training,
    marks: Sequence[int] = (),
    seed: int = 0,
) -> Trained:
    """Train in place and keep what the rule chooses; `marks` are epochs to remember as well."""
    loss, answer = cross_entropy(judge), judge.positive.float().argmax(1)
    optimiser = _optimiser(parameters, how)
    generator = torch.Generator().manual_seed(seed)
    best = Trained(0)
    kept, score = _copy(parameters), -np.inf
    if how.stop == "held-out loss":
        best.held_out_loss = _loss_on(embed, judge, held_out)
        score = -best.held_out_loss
    for epoch in range(1, how.epochs + 1):
        right = 0
        order = torch.as_tensor(rows)[torch.randperm(len(rows), generator=generator)]
        for batch in order.split(how.batch_size):
            joint = embed(batch)
            value = loss(joint, batch)
            optimiser.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            right += int((judge.logits(joint.detach()).argmax(1) == answer[batch]).sum())
        if epoch in marks:
            best.marks[epoch] = _copy(parameters)
        now = float(epoch)  # the last epoch is always the best one
        if how.stop == "training accuracy":
            now = right / len(rows)
        elif how.stop == "held-out loss":
            now = -_loss_on(embed, judge, held_out)
        if now > score:
            score, best.epochs, kept = now, epoch, _copy(parameters)
        elif epoch - best.epochs >= how.patience:
            break
    if how.stop == "held-out loss":
        best.held_out_loss = -score
    best.capped = best.epochs == how.epochs and how.stop != "last epoch"
    restore(parameters, kept)
    return best


def _optimiser(parameters: Sequence[Tensor], how: Training) -> torch.optim.Optimizer:
    if how.weight_decay:
        return torch.optim.AdamW(parameters, lr=how.learning_rate, weight_decay=how.weight_decay)
    return torch.optim.Adam(parameters, lr=how.learning_rate)


def _copy(parameters: Sequence[Tensor]) -> State:
    return [p.detach().clone() for p in parameters]


@torch.no_grad()
def restore(parameters: Sequence[Tensor], state: State) -> None:
    """Parameters as they were."""
    for parameter, value in zip(parameters, state, strict=True):
        parameter.copy_(value)


@torch.no_grad()
def _loss_on(embed: Embed, judge: Judge, rows: np.ndarray) -> float:
    parts = torch.as_tensor(rows).split(64)
    loss = cross_entropy(judge)
    return float(sum(float(loss(embed(part), part)) * len(part) for part in parts) / len(rows))
