"""One gain a principal component of the joint embedding: ResiDual without looking inside."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.methods.training import lesson_of
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight.fitting import fit_block


@dataclass(frozen=True)
class OutputGains(FromStore):
    """Trained as ResiDual is."""

    def fit(self, problem: Problem, split: Split) -> Fitted:
        spectrum = fit_spectrum(problem.joint[split.train].astype("float64"))
        keep = spectrum.eigenvalues > 1e-10 * spectrum.eigenvalues[0]
        basis = torch.from_numpy(spectrum.basis[keep].astype("float32"))
        mean = torch.from_numpy(spectrum.mean.astype("float32"))
        joint = torch.from_numpy(problem.joint)
        along = (joint - mean) @ basis.T
        lesson = lesson_of(problem, split)
        here, near = joint[lesson.order], along[lesson.order]
        values = torch.ones(len(basis), requires_grad=True)
        choice = fit_block(
            lambda rows: here[rows] + (near[rows] * (values - 1)) @ basis,
            [values],
            lesson,
            ResiDual().search(split.seed),
        )
        found = joint[split.test] + (along[split.test] * (values.detach() - 1)) @ basis
        return Fitted(problem.scores(found), len(basis), notes=choice.notes)
