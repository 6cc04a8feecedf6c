"""Gains on the direct path in closed form: least squares on the class scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.direct.joint_module import joint_of_module
from residual_audio.reweight.axes import ALL, Components
from residual_audio.reweight.closed_form import LeastSquares, centred_targets
from residual_audio.reweight.gains import n_gains
from residual_audio.reweight.objectives import objective
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class Linearised:
    """Class scores as a linear function of the latent, near the training clips."""

    to_classes: FloatArray
    """[D, class]"""
    scores: FloatArray
    """[clip, class], as they are."""
    spread: float

    @classmethod
    def of(cls, problem: Problem, train: np.ndarray) -> Linearised:
        texts = problem.judge.texts.numpy().astype(np.float64)
        texts = texts - texts.mean(0)
        step = joint_of_module(problem.head).derivative(problem.latent[train].mean(0)[None])
        length = float(np.linalg.norm(problem.joint[train], axis=1).mean())
        to_classes = step @ texts.T / length
        linear = problem.latent.astype(np.float64) @ to_classes
        offset = problem.joint[train] @ texts.T / length - linear[train]
        scores = linear + offset.mean(0)
        spread = float(scores[train].std()) * len(problem.classes) ** 0.5
        return cls(to_classes, scores, spread)


@dataclass(frozen=True)
class ClosedForm:
    """The pull towards 1 and the margin that is aimed at are chosen on held-out clips."""

    level: str = "head"
    stages: tuple[int, ...] | None = None
    components: Components = ALL
    alphas: tuple[float, ...] = tuple(np.geomspace(1e-3, 1e3, 7))
    margins: tuple[float, ...] = (1.0, 2.0, 4.0)

    @property
    def runs_encoder(self) -> bool:
        return False

    @property
    def _where(self) -> ResiDual:
        return ResiDual(self.level, self.stages, self.components, mean_gains=False)

    def offered(self, problem: Problem) -> bool:
        return self._where.offered(problem)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        terms = self._where.terms(problem, split)
        line = Linearised.of(problem, split.train)

        def system(rows: np.ndarray) -> LeastSquares:
            return LeastSquares(terms, rows, line.to_classes, line.scores[rows])

        def targets(rows: np.ndarray, margin: float) -> FloatArray:
            n_classes = len(problem.classes)
            return centred_targets(problem.codes[rows], n_classes, margin * line.spread)

        margin, alpha = self.margins[0], self.alphas[len(self.alphas) // 2]
        if len(split.held_out):
            judged = objective("cross-entropy", problem.judge)
            held = torch.as_tensor(split.held_out)
            wanted = [targets(split.fit, m) for m in self.margins]
            best, first = np.inf, system(split.fit)
            for a in self.alphas:
                for m, values in zip(self.margins, first.solve(wanted, a), strict=True):
                    with torch.no_grad():
                        loss = float(judged(problem.from_latent(terms.latent(values, held)), held))
                    if (loss, m, a) < (best, margin, alpha):
                        best, margin, alpha = loss, m, a
        values = system(split.train).solve([targets(split.train, margin)], alpha)[0]
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(values, torch.as_tensor(split.test)))
        candidates = len(self.margins) * len(self.alphas)
        notes = {"alpha": alpha, "margin": margin, "candidates": candidates}
        gains = terms.gains(values, {**problem.about, "fold": split.name, **notes})
        return Fitted(problem.scores(joint), n_gains(gains), gains, notes)
