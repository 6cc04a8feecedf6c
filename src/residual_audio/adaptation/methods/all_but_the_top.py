"""Embeddings less their mean and first components (Mu & Viswanath 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.choice import choose, unit_length
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class AllButTheTop(FromStore):
    """Unit embeddings less their mean and first k components, k chosen."""

    ks: tuple[int, ...] = (0, 1, 2, 3, 5, 8, 12, 20)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        unit = unit_length(problem.joint)
        texts = problem.judge.texts.numpy().astype(np.float64)

        def scores_of(k: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
            spectrum = fit_spectrum(unit[train])
            top = spectrum.basis[: int(k)]
            moved = unit[test] - spectrum.mean
            moved = moved - moved @ top.T @ top
            # texts lose their own mean and the same directions, so that both stay comparable
            other = texts - texts.mean(0)
            other = other - other @ top.T @ top
            return unit_length(moved) @ unit_length(other).T

        k = choose(self.ks, scores_of, problem, split, 1)
        return Fitted(scores_of(k, split.train, split.test), 1, notes={"k": k})
