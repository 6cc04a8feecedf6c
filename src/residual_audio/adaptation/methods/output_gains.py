"""One gain a principal component of the joint embedding: ResiDual without looking inside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import lesson_of
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.models.joint import Identity
from residual_audio.reweight.axes import ALL
from residual_audio.reweight.fitting import fit_direct
from residual_audio.reweight.path import Regularity
from residual_audio.reweight.terms import terms_of_vectors

SPARSE = Regularity("lasso")


@dataclass(frozen=True)
class OutputGains(FromStore):
    """Fitted as ResiDual is, with single gains in the place of units."""

    regularity: Regularity = SPARSE

    def fit(self, problem: Problem, split: Split) -> Fitted:
        spectrum = ALL.of(fit_spectrum(problem.joint[split.train].astype(np.float64)))
        terms = terms_of_vectors("output", problem.joint, spectrum)
        head = Identity(problem.joint.shape[1])
        found = fit_direct(terms, head, lesson_of(problem, split), self.regularity)
        joint = terms.latent(found.values, torch.as_tensor(split.test))
        return Fitted(problem.scores(joint), terms.n_gains, notes=found.notes)
