"""Fitting λ (or any small set of parameters) by gradient descent, stopped by held-out clips.

The loop knows neither path: it is given a function from clip numbers to joint embeddings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.reweight.objectives import Objective
from residual_audio.reweight.path import Kind
from residual_audio.reweight.penalty import UNBOUNDED, Bounds

ClipNumbers = Tensor | slice
Embed = Callable[[ClipNumbers], Tensor]
"""Clip numbers (a tensor, or a slice where they are a run) → joint embeddings [clip, d]."""
Units = Sequence[Sequence[Tensor]]
"""Parameters that stay or go together."""


@dataclass(frozen=True)
class FitSettings:
    """How to fit. The defaults were chosen on training folds only."""

    epochs: int = 30
    learning_rate: float = 0.1
    batch_size: int | None = 128
    """None: all clips in one step."""
    penalty: Kind = "ridge"
    """What pulls back to the start (1 for gains) after every step, decoupled from the gradient as
    in AdamW. ridge: λ ← λ − rate · strength · (λ − 1); lasso: |λ − 1| shrinks by rate · strength,
    never past 0; group: ‖λ − 1‖ of a unit by rate · strength · √n. Adam's steps are as long as the
    rate where all batches agree, so at a strength of 1 the last two let nothing move."""
    strength: float = 0.0
    bounds: Bounds = UNBOUNDED
    patience: int = 5
    """Epochs without a better held-out loss before stopping."""
    seed: int = 0


@dataclass(frozen=True)
class History:
    """What happened while fitting."""

    train_loss: tuple[float, ...] = ()
    held_out_loss: tuple[float, ...] = ()
    best_epoch: int = 0
    """Epochs that gave the kept parameters; 0 means that nothing beat the start."""
    seconds: float = 0.0


def fit(
    embed: Embed,
    parameters: Sequence[Tensor],
    objective: Objective,
    train: Sequence[int] | np.ndarray,
    held_out: Sequence[int] | np.ndarray | None,
    settings: FitSettings,
    *,
    epochs: int | None = None,
    units: Units = (),
) -> History:
    """Train in place; with held-out clips the parameters of the best epoch are kept.

    The start itself is a candidate: where no epoch has a lower held-out loss, nothing changes.
    Without held-out clips exactly `epochs` epochs are run. `units`: which of the parameters belong
    together under a group penalty; none for each by itself.
    """
    if len(train) < 2:
        raise InputError(f"there are only {len(train)} clips to fit on")
    epochs = settings.epochs if epochs is None else epochs
    start = time.perf_counter()
    first = [p.detach().clone() for p in parameters]
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    optimiser = torch.optim.Adam(parameters, lr=settings.learning_rate, fused=fused)
    generator = torch.Generator().manual_seed(settings.seed)
    rows = torch.as_tensor(np.asarray(train))
    held = None if held_out is None or not len(held_out) else torch.as_tensor(np.asarray(held_out))
    best = [p.detach().clone() for p in parameters]
    best_epoch, best_loss = 0, _loss_on(embed, objective, held) if held is not None else np.inf
    train_losses, held_losses = [], [best_loss] if held is not None else []
    for epoch in range(1, epochs + 1):
        summed = torch.zeros(())
        for batch in _batches(rows, settings.batch_size, generator):
            # shuffled rows are no run: nothing to find out
            loss = objective(embed(as_run(batch) if len(batch) == len(rows) else batch), batch)
            summed = summed + loss.detach().cpu() * len(batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            _constrain(parameters, first, settings, units)
        train_losses.append(float(summed) / len(rows))
        if not np.isfinite(train_losses[-1]):
            raise InputError(
                f"the loss is {train_losses[-1]} in epoch {epoch}: lower the learning rate "
                f"(now {settings.learning_rate})"
            )
        if held is None:
            best_epoch = epoch
            continue
        held_losses.append(_loss_on(embed, objective, held))
        if held_losses[-1] < best_loss:
            best_loss, best_epoch = held_losses[-1], epoch
            best = [p.detach().clone() for p in parameters]
        elif epoch - best_epoch >= settings.patience:
            break
    if held is not None:
        with torch.no_grad():
            for parameter, value in zip(parameters, best, strict=True):
                parameter.copy_(value)
    return History(tuple(train_losses), tuple(held_losses), best_epoch, time.perf_counter() - start)


def _batches(rows: Tensor, size: int | None, generator: torch.Generator) -> Sequence[Tensor]:
    """All rows as they are, or shuffled and cut; a lone last clip waits for the next epoch."""
    if size is None or size >= len(rows):
        return [rows]
    order = rows[torch.randperm(len(rows), generator=generator)]
    return [batch for batch in order.split(size) if len(batch) > 1]


def as_run(rows: Tensor) -> ClipNumbers:
    """Consecutive clip numbers as a slice, so that taking them copies nothing."""
    first = int(rows[0])
    if bool((rows == torch.arange(first, first + len(rows))).all()):
        return slice(first, first + len(rows))
    return rows


@torch.no_grad()
def _constrain(
    parameters: Sequence[Tensor], first: Sequence[Tensor], settings: FitSettings, units: Units
) -> None:
    amount = settings.learning_rate * settings.strength
    if amount and settings.penalty == "group":
        _shrink_units(parameters, first, amount, units)
    for p, s in zip(parameters, first, strict=True):
        if amount and settings.penalty == "ridge":
            p.sub_(amount * (p - s))
        if amount and settings.penalty == "lasso":
            change = p - s
            p.copy_(s + change.sign() * (change.abs() - amount).clamp(min=0))
        if settings.bounds.finite:
            p.clamp_(settings.bounds.low, settings.bounds.high)


def _shrink_units(
    parameters: Sequence[Tensor], first: Sequence[Tensor], amount: float, units: Units
) -> None:
    """Every unit's change made shorter by `amount` · √n, and none where it is shorter than that."""
    start = dict(zip(map(id, parameters), first, strict=True))
    for unit in units or [[p] for p in parameters]:
        changes = [p - start[id(p)] for p in unit]
        length = float(torch.stack([change.square().sum() for change in changes]).sum().sqrt())
        price = amount * sum(p.numel() for p in unit) ** 0.5
        left = 1.0 - price / length if length > price else 0.0
        for p, change in zip(unit, changes, strict=True):
            p.copy_(start[id(p)] + left * change)


@torch.no_grad()
def _loss_on(embed: Embed, objective: Objective, rows: Tensor, chunk: int = 512) -> float:
    parts = [(objective(embed(as_run(r)), r), len(r)) for r in rows.split(chunk)]
    return float(sum(float(value) * n for value, n in parts) / len(rows))
