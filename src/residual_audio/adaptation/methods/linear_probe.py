"""Logistic regression on frozen vectors; uses no text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.choice import choose, unit_length
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.classification import softmax
from residual_audio.reweight.solver import Stopping
from residual_audio.types import FloatArray

# what scipy calls it when it has taken as many steps as it may
AT_CAP = 1
CONVERGED = Stopping(5e-3, 2000, descent=1e-4)
"""The rule of gains, but no baseline is to fall short for want of steps: it descends further."""


@dataclass(frozen=True)
class LinearProbe(FromStore):
    """On standardised `latent` or `joint` vectors, the strength of the pull to 0 chosen.

    >>> LinearProbe("latent").pulls
    (1.0, 0.1, 0.01, 0.001)
    """

    space: Literal["latent", "joint"] = "joint"
    pulls: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    stop: Stopping = CONVERGED

    def fit(self, problem: Problem, split: Split) -> Fitted:
        x = problem.latent if self.space == "latent" else unit_length(problem.joint)
        n_classes = len(problem.classes)

        def regression(train: np.ndarray) -> LogisticRegression:
            return LogisticRegression(x[train], problem.codes[train], n_classes)

        tried, last = regression(split.fit), regression(split.train)

        def scores_of(pull: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
            tried.fit(pull, self.stop)
            return tried.scores(x[test])

        pull = choose(self.pulls, scores_of, problem, split, 0.1)
        converged = last.fit(pull, self.stop)
        notes = {"pull": pull, "converged": converged}
        return Fitted(last.scores(x[split.test]), (x.shape[1] + 1) * n_classes, notes=notes)


class LogisticRegression:
    """Weights that minimise cross-entropy + pull/2 ‖W‖² on standardised vectors (the bias is free).

    Each fit begins from the weights of the one before.
    """

    def __init__(self, x: FloatArray, codes: np.ndarray, n_classes: int) -> None:
        self._mean, self._scale = x.mean(0), x.std(0) + 1e-6
        inputs = (x - self._mean) / self._scale
        self._turn: FloatArray | None = None
        if len(x) < x.shape[1]:  # weights lie among the clips: the same in fewer coordinates
            self._turn = np.linalg.svd(inputs, full_matrices=False)[2]
        self._inputs = self._with_ones(inputs)
        self._target = np.eye(n_classes)[codes]
        self._weights = np.zeros((self._inputs.shape[1], n_classes))
        # the largest slope where all weights are 0, in which the tolerance is told
        self._unit = float(np.abs(self._inputs.T @ (1 / n_classes - self._target)).max()) / len(x)

    def fit(self, pull: float, stop: Stopping = CONVERGED) -> bool:
        """Whether it converged, by the rule for gains; False: it stopped at the cap."""
        shape = self._weights.shape

        def at(flat: FloatArray) -> tuple[float, FloatArray]:
            weights = flat.reshape(shape)
            logits = self._inputs @ weights
            held = pull * weights
            held[-1] = 0.0
            loss = float((logsumexp(logits, axis=1) - (logits * self._target).sum(1)).mean())
            slope = self._inputs.T @ (softmax(logits) - self._target) / len(logits) + held
            return loss + 0.5 * float((held * weights).sum()), slope.ravel()

        options = {
            "maxiter": stop.evaluations,
            "maxfun": stop.evaluations,
            "gtol": stop.tolerance * self._unit,
            "ftol": stop.descent / 10,
            "maxcor": 20,
        }
        found = minimize(at, self._weights.ravel(), jac=True, method="L-BFGS-B", options=options)
        self._weights = found.x.reshape(shape)
        return bool(found.status != AT_CAP)

    @property
    def weights(self) -> FloatArray:
        """[d + 1, class] of standardised vectors, the bias last."""
        if self._turn is None:
            return self._weights
        return np.concatenate([self._turn.T @ self._weights[:-1], self._weights[-1:]])

    def scores(self, x: FloatArray) -> FloatArray:
        """[clip, class]: probabilities."""
        return softmax(self._with_ones((x - self._mean) / self._scale) @ self._weights)

    def _with_ones(self, inputs: FloatArray) -> FloatArray:
        inside = inputs if self._turn is None else inputs @ self._turn.T
        return np.concatenate([inside, np.ones((len(inside), 1))], 1)
