"""LoRA on W_O (Hu et al. 2021), with as many numbers as gains would have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.elsewhere_embedding import by_adapter
from residual_audio.adaptation.methods.in_encoder import fit_adapter, rates_of
from residual_audio.adaptation.methods.method import Fitted, InEncoder
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.descent import FitSettings
from residual_audio.reweight.lora import LowRank, rank_within
from residual_audio.reweight.low_rank_form import trained_form

SETTINGS = FitSettings(epochs=60, learning_rate=3e-3, batch_size=32, patience=4)
RATES = (3e-3, 1e-2)


@dataclass(frozen=True)
class LoRA(InEncoder):
    """W_O + A B with at most `budget` numbers.

    >>> LoRA(budget=5000).budget
    5000
    """

    budget: int | None = None
    """None: `times` the number of gains of all heads."""
    times: int = 1
    settings: FitSettings = SETTINGS
    rates: tuple[float, ...] = RATES
    """Of which the held-out clips choose; none: that of the settings."""

    def fit(self, problem: Problem, split: Split) -> Fitted:
        return self.trained(problem, split)[1]

    def trained(self, problem: Problem, split: Split) -> tuple[LowRank, Fitted]:
        """The update itself, and what it is worth."""
        gains = sum(site.n_heads * site.d_head for site in problem.sites)
        sites, rank = rank_within(self.budget or self.times * gains, problem.sites)
        lora = LowRank(problem.sites, sites, rank, split.seed)
        search = rates_of(self.settings, self.rates, split.seed)
        found = fit_adapter(problem, split, lora, list(lora.parameters()), search)
        notes = {**found.notes, "rank": rank, "sites": len(sites)}
        update = trained_form(lora)
        return lora, replace(found, notes=notes, updates=update, elsewhere=by_adapter(lora))
