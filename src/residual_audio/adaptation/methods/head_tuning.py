"""The joint head alone, which every clip's latent goes through last."""

from __future__ import annotations

from dataclasses import dataclass

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import fit_weights, rates_of
from residual_audio.adaptation.methods.method import Fitted, InEncoder
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.descent import FitSettings
from residual_audio.reweight.tuning import TunedWeights
from residual_audio.types import blocks_of

SETTINGS = FitSettings(epochs=60, learning_rate=1e-3, batch_size=64, patience=4)
RATES = (1e-3, 3e-3)


@dataclass(frozen=True)
class HeadTuning(InEncoder):
    """Quick: latents are computed once, and no block runs again."""

    settings: FitSettings = SETTINGS
    rates: tuple[float, ...] = RATES
    """Of which the held-out clips choose; none: that of the settings."""

    def offered(self, problem: Problem) -> bool:
        return problem.streams is not None and problem.head.reads_latent

    def fit(self, problem: Problem, split: Split) -> Fitted:
        tuned = TunedWeights(problem.encoder.passes.model.head)
        tuned.first_block = len(blocks_of(problem.sites))
        search = rates_of(self.settings, self.rates, split.seed)
        return fit_weights(problem, split, tuned, search)
