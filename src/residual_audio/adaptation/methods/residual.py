"""ResiDual: a gain for each principal component of units, on the direct path or in the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.in_encoder import (
    FEW_SHOT_NETWORK_EPOCHS,
    lesson_of,
    scores_of,
)
from residual_audio.adaptation.methods.method import Fitted
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.references import references_of
from residual_audio.errors import InputError
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
from residual_audio.reweight.descent_search import Search
from residual_audio.reweight.fitting import TermsFor, fit_direct, fit_inside
from residual_audio.reweight.gains import identity_gains, n_gains
from residual_audio.reweight.keep_in_place import Hold, KeepInPlace
from residual_audio.reweight.learned_axes import learned_axes
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import objective, parse_objective
from residual_audio.reweight.path import FREE, Kind, Regularity
from residual_audio.reweight.penalty import UNBOUNDED, Bounds
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.types import Spectrum

# `patience` stops it; what reaches the cap says so
NETWORK = FitSettings(epochs=60, learning_rate=0.03, batch_size=32, patience=4, bounds=Bounds(0, 4))

OF_CAPTIONS = (10.0, 3.0, 1.0, 0.3, 0.1)
"""Strengths of the ridge of free gains where each text has few clips: weaker ones only fit."""


@dataclass(frozen=True)
class ResiDual:
    """Gains of components, as the published method has them, and its controls as parameters.

    By default gains are bounded and few: units that are not worth their penalty stay exactly at 1.


    >>> method = ResiDual(stages=(2, 3), path="network")
    >>> method.level, method.runs_encoder
    ('head', True)
    """

    level: str = "head"
    """head, attention, mlp, stage or output."""
    stages: tuple[int, ...] | None = None
    """None: all of them."""
    components: Components = ALL
    axes: Axes = "pca"
    keep_mean: bool = True
    mean_gains: bool = True
    """Also a gain of every unit's mean."""
    objective: str | None = None
    """A name, or a weighted mixture like `entropy:1,gap:0.5`; None: cross-entropy of labels, the
    contrastive loss of captions."""
    path: Literal["direct", "network"] = "direct"
    bounds: tuple[float, float] = (0.0, 4.0)
    """The least and the largest gain."""
    penalty: Kind = "group"
    """group: units stay at 1; lasso: single gains do; ridge: all move. Direct path only."""
    agreement: float = 0.9
    """Chosen gains are held so that edits of two parts of the clips have this cosine; 0: no such
    demand. Direct path only."""
    unbounded: bool = False
    """No bounds and a ridge penalty, its strength by the least held-out loss: a classifier written
    into the heads rather than a reweighting."""
    keep: str | tuple[str, ...] = ()
    """Runs (`RUN`, or folds of it: `RUN#1,2`) whose answers are held in place; `synthetic` is a run
    of the bundled sounds, made where it is not there yet."""
    max_loss: float = 0.03
    """Share of right answers that may be lost there."""
    hold: Hold = "answers"
    settings: FitSettings | None = None
    """Of the descent inside the network; None: what is good there."""
    rates: tuple[float, ...] = ()
    """Learning rates of which the held-out clips choose, inside the network."""

    def __post_init__(self) -> None:
        if self.objective is not None:  # an unknown word is refused before anything is run
            parse_objective(self.objective)
        Regularity(self.penalty, Bounds(*self.bounds), agreement=self.agreement)
        if self.keep and self.path == "network":
            raise InputError("reference runs can be kept on the direct path only")

    @property
    def references(self) -> tuple[str, ...]:
        """The runs to keep."""
        return (self.keep,) if isinstance(self.keep, str) else tuple(self.keep)

    @property
    def regularity(self) -> Regularity:
        """How the gains are held near 1."""
        if self.unbounded:
            return FREE
        return Regularity(self.penalty, Bounds(*self.bounds), agreement=self.agreement)

    @property
    def runs_encoder(self) -> bool:
        return self.path == "network"

    def offered(self, problem: Problem) -> bool:
        there = problem.streams if self.path == "network" else problem.contributions
        return there is not None and set(self.stages or ()) <= set(problem.stages)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        return self._inside(problem, split) if self.runs_encoder else self._direct(problem, split)

    def terms(self, problem: Problem, split: Split) -> DirectTerms:
        """Coordinates of all clips along the axes of the training clips, not learned ones."""
        units = chosen_units(problem.sites, self.level, self.stages)
        spectra = problem.spectra(units, split.train, self.components)
        return self._along(problem, turn(spectra, self.axes, split.seed))

    def _along(self, problem: Problem, spectra: Mapping[str, Spectrum]) -> DirectTerms:
        return direct_terms(
            problem.direct,
            spectra,
            keep_mean=self.keep_mean,
            mean_gains=self.mean_gains and self.keep_mean,
        )

    def terms_for(self, problem: Problem, split: Split) -> TermsFor:
        """Training clips → terms; only learned axes depend on which of them may be looked at."""
        fixed = self.terms(problem, split)
        if self.axes != "learned":
            return lambda rows: fixed

        def learned(rows: np.ndarray) -> DirectTerms:
            loss = objective(self.objective or problem.objective, problem.judge.at(rows))
            bounds = self.regularity.bounds
            return self._along(
                problem, learned_axes(fixed.at(rows), problem.from_latent, loss, bounds)
            )

        return learned

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
        lesson = lesson_of(problem, split, self.objective)
        keep = None
        if self.keep:
            keep = KeepInPlace(references_of(self.references, problem), self.max_loss, self.hold)
        how = self.regularity
        if problem.judge.own and self.unbounded:
            how = replace(how, strengths=OF_CAPTIONS)
        found = fit_direct(self.terms_for(problem, split), problem.head, lesson, how, keep)
        terms = found.terms
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(found.values, torch.as_tensor(split.test)))
        gains = terms.gains(found.values, {**problem.about, "fold": split.name, **found.notes})
        fitted = n_gains(gains)
        if self.axes == "learned":  # a rotation of k axes is k (k − 1) / 2 numbers more
            fitted += sum(k * (k - 1) // 2 for k in terms.sizes)
        return Fitted(problem.scores(joint), fitted, gains, found.notes)

    def _inside(self, problem: Problem, split: Split) -> Fitted:
        streams = problem.encoder
        gains = self.start(problem, split)
        embed = streams.embed(gains)
        lesson = lesson_of(problem, split, self.objective)
        choice = fit_inside(embed, list(gains.parameters()), lesson, self.search(split.seed))
        found = gains.gains()
        found = replace(found, fitted_on={**found.fitted_on, **choice.notes})
        return Fitted(scores_of(problem, split.test, embed), n_gains(found), found, choice.notes)

    def search(self, seed: int) -> Search:
        """The settings to choose among inside the network."""
        settings = self.settings or NETWORK
        bounds = UNBOUNDED if self.unbounded else Bounds(*self.bounds)
        settings = replace(settings, seed=seed, bounds=bounds)
        rates = self.rates or (settings.learning_rate,)
        options = tuple(replace(settings, learning_rate=rate) for rate in rates)
        return Search(options, FEW_SHOT_NETWORK_EPOCHS)
