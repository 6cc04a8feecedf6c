"""Logistic regression on frozen vectors; uses no text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.choice import choose, unit_length
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.classification import softmax
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class LinearProbe(FromStore):
    """On standardised `latent` or `joint` vectors, the strength of the pull to 0 chosen.

    >>> LinearProbe("latent")
    LinearProbe(space='latent', pulls=(1.0, 0.1, 0.01, 0.001))
    """

    space: Literal["latent", "joint"] = "joint"
    pulls: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        x = problem.latent if self.space == "latent" else unit_length(problem.joint)
        n_classes = len(problem.classes)

        def scores_of(pull: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
            mean, scale = x[train].mean(0), x[train].std(0) + 1e-6
            weights = logistic((x[train] - mean) / scale, problem.codes[train], n_classes, pull)
            inputs = np.concatenate([(x[test] - mean) / scale, np.ones((len(test), 1))], 1)
            return softmax(inputs @ weights)

        pull = choose(self.pulls, scores_of, problem, split, 0.1)
        scores = scores_of(pull, split.train, split.test)
        return Fitted(scores, (x.shape[1] + 1) * n_classes, notes={"pull": pull})


def logistic(x: FloatArray, codes: np.ndarray, n_classes: int, pull: float) -> FloatArray:
    """Weights [d + 1, class] that minimise cross-entropy + pull/2 ‖W‖² (the bias is free)."""
    turn = None
    if len(x) < x.shape[1]:  # weights lie among the clips: the same problem in fewer coordinates
        turn = np.linalg.svd(x, full_matrices=False)[2]
        x = x @ turn.T
    inputs = torch.as_tensor(np.concatenate([x, np.ones((len(x), 1))], 1), dtype=torch.float64)
    target = torch.as_tensor(codes)
    weights = torch.zeros(inputs.shape[1], n_classes, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights], max_iter=100, tolerance_grad=1e-5, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = torch.nn.functional.cross_entropy(inputs @ weights, target)
        value = value + 0.5 * pull * weights[:-1].square().sum()
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    found = weights.detach().numpy()
    return found if turn is None else np.concatenate([turn.T @ found[:-1], found[-1:]])
