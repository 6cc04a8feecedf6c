"""ResiDual: a gain for each principal component of units, on the direct path or in the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted
from residual_audio.adaptation.methods.training import (
    FEW_SHOT_NETWORK_EPOCHS,
    lesson_of,
    scores_of,
)
from residual_audio.adaptation.problem import Problem
from residual_audio.reweight.axes import (
    ALL,
    Axes,
    Components,
    chosen_units,
    kept_parts,
    network_spectra,
    turn,
)
from residual_audio.reweight.descent import FitSettings
from residual_audio.reweight.fitting import fit_direct, fit_inside
from residual_audio.reweight.gains import identity_gains, n_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import parse_objective
from residual_audio.reweight.solver import Search
from residual_audio.reweight.terms import DirectTerms, direct_terms

# Chosen by the loss on held-out clips of training parts, never by a test part: twice the rate gives
# in 20 epochs what half of it gives in 30.
DIRECT = FitSettings(epochs=20)
RATES = (0.1, 1.0)
FEW_SHOT_RATE = 0.1
NETWORK = FitSettings(epochs=20, learning_rate=0.03, batch_size=32, patience=4)


@dataclass(frozen=True)
class ResiDual:
    """Gains of components, as the published method has them, and its controls as parameters."""

    level: str = "head"
    """head, attention, mlp, stage or output."""
    stages: tuple[int, ...] | None = None
    """None: all of them."""
    components: Components = ALL
    axes: Axes = "pca"
    keep_mean: bool = True
    mean_gains: bool = True
    """Also a gain of every unit's mean."""
    objective: str = "cross-entropy"
    """A name, or a weighted mixture like `entropy:1,gap:0.5`."""
    path: Literal["direct", "network"] = "direct"
    settings: FitSettings | None = None
    """None: what is good on the path."""
    rates: tuple[float, ...] | None = None
    """Learning rates of which the held-out clips choose; None: what is good on the path."""

    def __post_init__(self) -> None:
        parse_objective(self.objective)  # an unknown word is refused before anything is run

    @property
    def runs_encoder(self) -> bool:
        return self.path == "network"

    def offered(self, problem: Problem) -> bool:
        there = problem.streams if self.path == "network" else problem.contributions
        return there is not None and set(self.stages or ()) <= set(problem.stages)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        return self._inside(problem, split) if self.runs_encoder else self._direct(problem, split)

    def terms(self, problem: Problem, split: Split) -> DirectTerms:
        """Coordinates of all clips along the axes of the training clips."""
        units = chosen_units(problem.sites, self.level, self.stages)
        spectra = problem.spectra(units, split.train, self.components)
        return direct_terms(
            problem.direct,
            turn(spectra, self.axes, split.seed),
            keep_mean=self.keep_mean,
            mean_gains=self.mean_gains and self.keep_mean,
        )

    def start(self, problem: Problem, split: Split) -> NetworkGains:
        """Gains of 1 inside the network, in the spectra of pooled vectors of the training clips."""
        units = chosen_units(problem.sites, self.level, self.stages)
        spectra = network_spectra(problem.vectors, units, split.train)
        given = identity_gains(
            turn(kept_parts(spectra, self.components), self.axes, split.seed),
            mean_gains=self.mean_gains and self.keep_mean,
            keep_mean=self.keep_mean,
            fitted_on={**problem.about, "fold": split.name},
        )
        return NetworkGains(given, problem.sites)

    def _direct(self, problem: Problem, split: Split) -> Fitted:
        terms = self.terms(problem, split)
        lesson = lesson_of(problem, split, self.objective)
        values, choice = fit_direct(terms, problem.from_latent, lesson, self.search(split.seed))
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(values, torch.as_tensor(split.test)))
        gains = terms.gains(values, {**problem.about, "fold": split.name, **choice.notes})
        return Fitted(problem.scores(joint), n_gains(gains), gains, choice.notes)

    def _inside(self, problem: Problem, split: Split) -> Fitted:
        streams = problem.encoder
        gains = self.start(problem, split)
        embed = streams.embed(gains)
        lesson = lesson_of(problem, split, self.objective)
        choice = fit_inside(embed, list(gains.parameters()), lesson, self.search(split.seed))
        found = gains.gains()
        return Fitted(scores_of(problem, split.test, embed), n_gains(found), found, choice.notes)

    def search(self, seed: int) -> Search:
        """The settings to choose among."""
        if self.path == "network":
            settings = replace(self.settings or NETWORK, seed=seed)
            rates = self.rates or (settings.learning_rate,)
            options = tuple(replace(settings, learning_rate=rate) for rate in rates)
            return Search(options, FEW_SHOT_NETWORK_EPOCHS)
        settings = replace(self.settings or DIRECT, seed=seed)
        if self.components.coarse:  # whole contributions are large: take them in one piece
            more = settings.epochs + settings.epochs // 2
            settings = replace(settings, batch_size=None, epochs=more)
        options = tuple(replace(settings, learning_rate=rate) for rate in self.rates or RATES)
        return Search(options, few_shot_rate=FEW_SHOT_RATE)
