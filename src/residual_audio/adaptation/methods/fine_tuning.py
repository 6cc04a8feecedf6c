"""Every parameter of the encoder, put back afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import fit_weights, rates_of
from residual_audio.adaptation.methods.method import Fitted, InEncoder
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.descent import FitSettings
from residual_audio.reweight.tuning import TunedWeights, n_weights

SETTINGS = FitSettings(epochs=60, learning_rate=1e-4, batch_size=32, patience=4)
RATES = (1e-4, 3e-4)


@dataclass(frozen=True)
class FineTuning(InEncoder):
    """Of encoders up to a size that is bearable on a few cores."""

    settings: FitSettings = SETTINGS
    rates: tuple[float, ...] = RATES
    """Of which the held-out clips choose; none: that of the settings."""
    max_parameters: int = 20_000_000

    def offered(self, problem: Problem) -> bool:
        if problem.streams is None:
            return False
        return n_weights(problem.streams.passes.model.encoder) < self.max_parameters

    def fit(self, problem: Problem, split: Split) -> Fitted:
        tuned = TunedWeights(problem.encoder.passes.model.encoder)
        search = rates_of(self.settings, self.rates, split.seed)
        return fit_weights(problem, split, tuned, search)
