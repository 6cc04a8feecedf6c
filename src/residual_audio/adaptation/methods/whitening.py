"""Embeddings whitened, with shrinkage towards no change."""

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
class Whitening(FromStore):
    """The shrinkage is chosen; 1 is no change but for the mean."""

    shrinkages: tuple[float, ...] = (1.0, 0.9, 0.5, 0.2, 0.1, 0.03, 0.01)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        unit = unit_length(problem.joint)
        texts = problem.judge.texts.numpy().astype(np.float64)

        def scores_of(shrinkage: float, train: np.ndarray, test: np.ndarray) -> FloatArray:
            spectrum = fit_spectrum(unit[train])
            values = spectrum.eigenvalues
            level = float(values.mean())
            scale = 1 / np.sqrt((1 - shrinkage) * values + shrinkage * level)
            whiten = spectrum.basis.T * scale @ spectrum.basis
            other = texts - texts.mean(0)
            moved = (unit[test] - spectrum.mean) @ whiten
            return unit_length(moved) @ unit_length(other @ whiten).T

        s = choose(self.shrinkages, scores_of, problem, split, 0.5)
        return Fitted(scores_of(s, split.train, split.test), 1, notes={"shrinkage": s})
