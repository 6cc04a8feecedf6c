"""The linear column of a protocol: a classifier on the frozen joint embedding."""

from __future__ import annotations

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.linear_probe import LinearProbe
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.protocols.protocol_recipe import ProtocolRecipe
from residual_audio.metrics.classification import true_rank
from residual_audio.types import FloatArray

RATE, EPOCHS, BATCH = 0.01, 5, 64


def linear_hits(problem: Problem, split: Split, recipe: ProtocolRecipe) -> FloatArray:
    """[test clip] right or wrong."""
    if recipe.linear == "chosen strength":
        scores = LinearProbe("joint").fit(problem, split).scores
    else:
        scores = _five_epochs(problem, split)
    return (true_rank(scores, problem.codes[split.test]) == 1).astype(np.float64)


def n_linear(problem: Problem) -> int:
    return (problem.joint.shape[1] + 1) * len(problem.classes)


def _five_epochs(problem: Problem, split: Split) -> FloatArray:
    """AdamW over shuffled batches, as published."""
    x = torch.nn.functional.normalize(torch.as_tensor(problem.joint), dim=-1)
    target = torch.as_tensor(problem.codes)
    generator = torch.Generator().manual_seed(split.seed)
    layer = torch.nn.Linear(x.shape[1], len(problem.classes))
    with torch.no_grad():
        bound = (6 / x.shape[1]) ** 0.5  # Kaiming's, from a generator of its own
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.zero_()
    optimiser = torch.optim.AdamW(layer.parameters(), lr=RATE)
    rows = torch.as_tensor(split.train)
    with torch.enable_grad():
        for _ in range(EPOCHS):
            for batch in rows[torch.randperm(len(rows), generator=generator)].split(BATCH):
                loss = torch.nn.functional.cross_entropy(layer(x[batch]), target[batch])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    return layer(x[torch.as_tensor(split.test)]).detach().numpy().astype(np.float64)
