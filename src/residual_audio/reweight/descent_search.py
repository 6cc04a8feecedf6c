"""Descent with its settings and epochs chosen on held-out clips, then run again on all of them.

For what runs the encoder: gains inside it, low-rank updates, tuning. Gains on the direct path need
neither rates nor epochs (see `solver`). Rates are compared in short heats; strengths of a penalty
are run to their end, and the strongest within one standard error (over groups) of the least
held-out loss is taken, with the start as a candidate like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from residual_audio.reweight.descent import Embed, FitSettings, Units, fit
from residual_audio.reweight.objectives import Objective
from residual_audio.reweight.path import left_out, standard_error

# share of the epochs after which settings are compared
HEAT = 0.1


@dataclass(frozen=True)
class Search:
    """Settings that the held-out clips choose among."""

    options: tuple[FitSettings, ...]
    """In order of preference."""
    strengths: tuple[float, ...] = ()
    """Of the penalty, falling; none: that of the options."""
    few_shot_epochs: int = 15
    """Run where no clip can be spared to choose by (one to three clips a class)."""
    few_shot_rate: float | None = None
    """The learning rate there; None for that of the first option."""


@dataclass(frozen=True)
class Choice:
    """What the held-out clips chose."""

    settings: FitSettings
    epochs: int
    """0: nothing beat the start, which was kept."""
    held_out_loss: float | None = None
    """None where there was no clip to choose by."""
    capped: bool = False
    """The held-out loss was still falling when the epochs ran out."""

    @property
    def notes(self) -> dict[str, float | bool]:
        """For the record of what was fitted."""
        out: dict[str, float | bool] = {"epochs": self.epochs, "strength": self.settings.strength}
        if self.held_out_loss is not None:
            out |= {
                "rate": self.settings.learning_rate,
                "held_out_loss": self.held_out_loss,
                "converged": not self.capped,
            }
        return out


@dataclass(frozen=True)
class HeldOutClips:
    """Clips that choose, and the groups they come in; there may be none."""

    rows: np.ndarray
    groups: Sequence[str] = ()
    """[clip of `rows`]; none: every clip stands alone."""

    def __len__(self) -> int:
        return len(self.rows)

    def standard_error(self, embed: Embed, loss: Objective) -> float:
        """Of the loss over these clips as the parameters stand, over groups."""
        with torch.no_grad():
            joint = torch.cat([embed(part) for part in torch.as_tensor(self.rows).split(512)])
        rows = torch.as_tensor(self.rows)
        groups = self.groups or [str(i) for i in self.rows]
        return standard_error(left_out(joint, groups, lambda some, which: loss(some, rows[which])))


@dataclass(frozen=True)
class _Trial:
    """One setting run to its end."""

    settings: FitSettings
    loss: float
    error: float
    epochs: int


def search_and_fit(
    embed: Embed,
    parameters: Sequence[Tensor],
    loss: Objective,
    train: np.ndarray,
    held_out: HeldOutClips,
    search: Search,
    units: Units = (),
) -> Choice:
    """Fit the parameters in place, from where they stand.

    Each option runs a short heat, the best of them the whole way; the number of epochs with the
    lowest held-out loss is then run again from the start on all clips.
    """
    first = [p.detach().clone() for p in parameters]

    def back() -> None:
        with torch.no_grad():
            for parameter, value in zip(parameters, first, strict=True):
                parameter.copy_(value)

    if not len(held_out):
        chosen = search.options[0]
        if search.few_shot_rate is not None:
            chosen = replace(chosen, learning_rate=search.few_shot_rate)
        count = search.few_shot_epochs
        fit(embed, parameters, loss, train, None, chosen, epochs=count, units=units)
        return Choice(chosen, count)

    def try_out(option: FitSettings, epochs: int) -> _Trial:
        rows = held_out.rows
        history = fit(embed, parameters, loss, train, rows, option, epochs=epochs, units=units)
        error = held_out.standard_error(embed, loss) if search.strengths else 0.0
        back()
        return _Trial(option, min(history.held_out_loss), error, history.best_epoch)

    options = list(search.options)
    if len(options) > 1:
        heat = max(1, round(HEAT * options[0].epochs))
        options.sort(key=lambda option: try_out(option, heat).loss)
    found = try_strengths(options[0], search.strengths, try_out)
    chosen = found.settings
    if found.epochs:
        everyone = np.sort(np.concatenate([train, held_out.rows]))
        fit(embed, parameters, loss, everyone, None, chosen, epochs=found.epochs, units=units)
    return Choice(chosen, found.epochs, found.loss, capped=found.epochs == chosen.epochs)


def try_strengths(
    option: FitSettings,
    strengths: Sequence[float],
    try_out: Callable[[FitSettings, int], _Trial],
) -> _Trial:
    """The strongest penalty whose held-out loss is within one standard error of the least."""
    if not strengths:
        return try_out(option, option.epochs)
    tried = [try_out(option, 0)]  # the start, which no penalty can hold better
    tried += [try_out(replace(option, strength=one), option.epochs) for one in strengths]
    best = min(tried, key=lambda one: one.loss)
    return next(one for one in tried if one.loss <= best.loss + best.error)
