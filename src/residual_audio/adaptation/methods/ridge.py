"""A linear map of embeddings to the texts of their classes, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.choice import choose, unit_length
from residual_audio.adaptation.methods.elsewhere_embedding import by_map
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class Ridge(FromStore):
    """W of ‖XW − T‖² + α‖W − I‖², unit embeddings X, texts T; α chosen."""

    alphas: tuple[float, ...] = tuple(np.geomspace(1e-3, 1e2, 11))

    def fit(self, problem: Problem, split: Split) -> Fitted:
        alpha, change = self.change(problem, split)
        unit = unit_length(problem.joint)
        scores = unit_length(unit[split.test] + unit[split.test] @ change) @ _texts(problem).T
        notes = {"alpha": float(alpha)}
        return Fitted(scores, unit.shape[1] ** 2, notes=notes, elsewhere=by_map(change))

    def change(self, problem: Problem, split: Split) -> tuple[float, FloatArray]:
        """α, and W − I [d, d]: what the map adds to unit embeddings."""
        unit, texts = unit_length(problem.joint), _texts(problem)

        def change_of(alpha: float, train: np.ndarray) -> FloatArray:
            x = unit[train]
            target = texts[problem.codes[train]] - x
            factor = cho_factor(x.T @ x + alpha * np.eye(x.shape[1]))
            return np.asarray(cho_solve(factor, x.T @ target))

        def scores_of(alpha: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
            moved = unit[test] + unit[test] @ change_of(alpha, train)
            return unit_length(moved) @ texts.T

        alpha = choose(self.alphas, scores_of, problem, split, 1.0)
        return alpha, change_of(alpha, split.train)


def _texts(problem: Problem) -> FloatArray:
    return problem.judge.texts.numpy().astype(np.float64)
