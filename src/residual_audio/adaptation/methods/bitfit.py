"""BitFit (Ben Zaken et al. 2022): only the biases of the encoder are trained."""

from __future__ import annotations

from dataclasses import dataclass

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import fit_weights, rates_of
from residual_audio.adaptation.methods.method import Fitted, InEncoder
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.descent import FitSettings
from residual_audio.reweight.tuning import TunedWeights

SETTINGS = FitSettings(epochs=60, learning_rate=1e-3, batch_size=32, patience=4)
RATES = (1e-3, 1e-2)


@dataclass(frozen=True)
class BitFit(InEncoder):
    """Every bias, of norms and projections alike, put back afterwards."""

    settings: FitSettings = SETTINGS
    rates: tuple[float, ...] = RATES
    """Of which the held-out clips choose; none: that of the settings."""

    def fit(self, problem: Problem, split: Split) -> Fitted:
        encoder = problem.encoder.passes.model.encoder
        biases = TunedWeights(encoder, lambda name: name.endswith(".bias"))
        search = rates_of(self.settings, self.rates, split.seed)
        return fit_weights(problem, split, biases, search)
