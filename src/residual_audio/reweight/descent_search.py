"""Descent with its settings and epochs chosen on held-out clips, then run again on all of them.

For what runs the encoder: gains inside it, low-rank updates, tuning. Gains on the direct path need
neither rates nor epochs (see `solver`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from residual_audio.reweight.descent import Embed, FitSettings, fit
from residual_audio.reweight.objectives import Objective

# share of the epochs after which settings are compared
HEAT = 0.2


@dataclass(frozen=True)
class Search:
    """Settings that the held-out clips choose among."""

    options: tuple[FitSettings, ...]
    """In order of preference."""
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
        if self.held_out_loss is None:
            return {"epochs": self.epochs, "l2": self.settings.l2}
        return {
            "epochs": self.epochs,
            "rate": self.settings.learning_rate,
            "l2": self.settings.l2,
            "held_out_loss": self.held_out_loss,
            "converged": not self.capped,
        }


def search_and_fit(
    embed: Embed,
    parameters: Sequence[Tensor],
    loss: Objective,
    train: np.ndarray,
    held_out: np.ndarray,
    search: Search,
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
        fit(embed, parameters, loss, train, None, chosen, epochs=search.few_shot_epochs)
        return Choice(chosen, search.few_shot_epochs)

    def try_out(option: FitSettings, epochs: int) -> tuple[float, int]:
        history = fit(embed, parameters, loss, train, held_out, option, epochs=epochs)
        back()
        return min(history.held_out_loss), history.best_epoch

    options = list(search.options)
    if len(options) > 1:
        heat = max(1, round(HEAT * options[0].epochs))
        options.sort(key=lambda option: try_out(option, heat)[0])
    chosen = options[0]
    best, epochs = try_out(chosen, chosen.epochs)
    if epochs:
        everyone = np.sort(np.concatenate([train, held_out]))
        fit(embed, parameters, loss, everyone, None, chosen, epochs=epochs)
    return Choice(chosen, epochs, best, capped=epochs == chosen.epochs)
