"""Gains fitted: from the terms of the direct path, or inside the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residual_audio.judge.answers import Judge
from residual_audio.reweight.descent import Embed
from residual_audio.reweight.objectives import objective
from residual_audio.reweight.solver import Choice, Search, solve
from residual_audio.reweight.terms import DirectTerms


@dataclass(frozen=True)
class Lesson:
    """What to learn from: clips with their answers, and what is to be made small."""

    judge: Judge
    train: np.ndarray
    held_out: np.ndarray
    """Chooses settings and epochs; may be empty."""
    objective: str = "cross-entropy"
    """A name or a weighted mixture, as `parse_objective` reads it."""

    @property
    def order(self) -> np.ndarray:
        """Training clips first and held-out clips last, so that both are slices of one block."""
        return np.concatenate([self.train, self.held_out])


def fit_direct(
    terms: DirectTerms, from_latent: Callable[[Tensor], Tensor], lesson: Lesson, search: Search
) -> tuple[Tensor, Choice]:
    """λ as one vector, from coordinates alone: no encoder pass."""
    local = terms.at(lesson.order)
    values = torch.ones(local.n_gains, requires_grad=True)
    choice = fit_block(
        lambda rows: from_latent(local.latent(values, rows)), [values], lesson, search
    )
    return values.detach(), choice


def fit_block(embed: Embed, parameters: Sequence[Tensor], lesson: Lesson, search: Search) -> Choice:
    """Fit where `embed` counts the clips of the lesson alone, in its order."""
    loss = objective(lesson.objective, lesson.judge.at(lesson.order))
    here = np.arange(len(lesson.order))
    n = len(lesson.train)
    return solve(embed, parameters, loss, here[:n], here[n:], search)


def fit_inside(
    embed: Embed, parameters: Sequence[Tensor], lesson: Lesson, search: Search
) -> Choice:
    """Fit an adapter where `embed` runs the encoder on any clip."""
    loss = objective(lesson.objective, lesson.judge)
    return solve(embed, parameters, loss, lesson.train, lesson.held_out, search)
