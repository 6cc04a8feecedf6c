"""What methods that are trained share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.cached import Adapter
from residual_audio.reweight.descent import Embed, FitSettings
from residual_audio.reweight.descent_search import Search
from residual_audio.reweight.fitting import Lesson, fit_inside
from residual_audio.reweight.tuning import TunedWeights
from residual_audio.types import FloatArray

FEW_SHOT_NETWORK_EPOCHS = 8


def rates_of(settings: FitSettings, rates: Sequence[float], seed: int) -> Search:
    """The held-out clips choose among rates; none: that of the settings."""
    own = replace(settings, seed=seed)
    options = tuple(replace(own, learning_rate=rate) for rate in rates) or (own,)
    return Search(options, few_shot_epochs=FEW_SHOT_NETWORK_EPOCHS)


def lesson_of(problem: Problem, split: Split, objective: str | None = None) -> Lesson:
    """The training part of a split."""
    goal = objective or problem.objective
    return Lesson(problem.judge, split.fit, split.held_out, goal, problem.groups)


@torch.no_grad()
def joint_of(clips: np.ndarray, embed: Embed) -> Tensor:
    """Embeddings [clip, d] that the encoder gives."""
    return torch.cat([embed(rows) for rows in torch.as_tensor(clips).split(32)])


def scores_of(problem: Problem, clips: np.ndarray, embed: Embed) -> FloatArray:
    """[clip, class] of embeddings that the encoder gives."""
    return problem.scores(joint_of(clips, embed))


def fit_adapter(
    problem: Problem,
    split: Split,
    adapter: Adapter,
    parameters: Sequence[Tensor],
    search: Search,
) -> Fitted:
    """Train what edits the forward pass, from the first block that it touches on."""
    embed = problem.encoder.embed(adapter)
    choice = fit_inside(embed, parameters, lesson_of(problem, split), search)
    n = sum(p.numel() for p in parameters)
    return Fitted(scores_of(problem, split.test, embed), n, notes=choice.notes)


def fit_weights(problem: Problem, split: Split, tuned: TunedWeights, search: Search) -> Fitted:
    """Train weights of the model itself and put them back."""
    streams = problem.encoder
    try:
        embed = streams.embed(tuned) if tuned.first_block else streams.embed_whole(tuned)
        choice = fit_inside(embed, tuned.parameters, lesson_of(problem, split), search)
        scores = scores_of(problem, split.test, embed)
        became = [(p, p.detach().clone()) for p in tuned.parameters]
    finally:
        tuned.restore()
    n = sum(p.numel() for p in tuned.parameters)
    return Fitted(scores, n, notes=choice.notes, weights=became)
