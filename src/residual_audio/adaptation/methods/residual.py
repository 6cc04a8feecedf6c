"""ResiDual: a gain for each principal component of units, on the direct path or in the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

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
from residual_audio.reweight.few import Few, fit_few, one_gain_a_unit
from residual_audio.reweight.fitting import Lesson, Settled, fit_direct, fit_inside
from residual_audio.reweight.gains import identity_gains, n_gains
from residual_audio.reweight.keep_in_place import Drift, Hold, KeepInPlace, drifts, held_in
from residual_audio.reweight.learned_axes import learned_axes
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import objective, parse_objective
from residual_audio.reweight.path import FREE, READABLE, Kind, Regularity
from residual_audio.reweight.penalty import UNBOUNDED, Bounds
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.reweight.turned import Shape
from residual_audio.reweight.uncorrelated import uncorrelated
from residual_audio.types import FloatArray, Spectrum

# `patience` stops it; what reaches the cap says so
NETWORK = FitSettings(epochs=60, learning_rate=0.1, batch_size=32, patience=4, bounds=Bounds(0, 4))
RATES = (0.3, 0.1)
INSIDE: dict[Kind, tuple[float, ...]] = {
    "group": (0.4, 0.3, 0.1),
    "lasso": (0.4, 0.3, 0.1),
    "ridge": (0.3, 0.03, 0.003),
}
"""Strengths of a penalty inside the network, where Adam's steps have a length of their own."""

Penalized = Literal["few", "group", "lasso", "ridge"]
AXES_HOLD = 20.0
"""How strongly references are held while axes are learned; gains along them choose their own."""
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
    axes: Axes | None = None
    """None: learned together with the gains; principal ones without bounds, inside the network, and
    of units that are not heads."""
    keep_mean: bool = True
    mean_gains: bool = True
    """Also a gain of every unit's mean."""
    objective: str | None = None
    """A name, or a weighted mixture like `entropy:1,gap:0.5`; None: cross-entropy of labels, the
    contrastive loss of captions."""
    path: Literal["direct", "network"] = "direct"
    bounds: tuple[float, float] | None = None
    """The least and the largest gain; None: 0 and 4, and none where references are kept."""
    penalty: Penalized | None = None
    """few: a share of the units moves; group: units that are worth their penalty; lasso: single
    gains; ridge: all. None: few of heads, else group; inside the network always group."""
    share: float = Few.share
    """Of all heads of the encoder, at most so many move (few), whatever stages they are taken
    from."""
    agreement: float = 0.9
    """Chosen gains are held so that edits of two parts of the clips have this cosine; 0: no such
    demand. Direct path only."""
    ridge: float | None = None
    """How strongly the gains of few units are held, where nothing is to be chosen."""
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
    """Of the descent inside the network; a strength there is taken as it is. None: what is good
    there, its rate and strength chosen by the held-out clips."""
    rates: tuple[float, ...] = ()
    """Learning rates of which the held-out clips choose, inside the network."""

    def __post_init__(self) -> None:
        if self.objective is not None:  # an unknown word is refused before anything is run
            parse_objective(self.objective)
        _ = self.few if self.chooses_few else self.regularity
        if self.penalty == "few" and self.path == "network":
            raise InputError("few: of gains on the direct path; inside the network use group")
        if self.share != Few.share and not self.chooses_few:
            raise InputError("a share of the heads is chosen by the penalty few alone")
        if self.keep and self.path == "network":
            raise InputError("reference runs can be kept on the direct path only")

    @property
    def references(self) -> tuple[str, ...]:
        """The runs to keep."""
        return (self.keep,) if isinstance(self.keep, str) else tuple(self.keep)

    @property
    def regularity(self) -> Regularity:
        """How the gains are held near 1."""
        if self.free:
            return FREE
        kind: Kind = "group" if self.penalty is None or self.penalty == "few" else self.penalty
        return Regularity(kind, self.limits, agreement=self.agreement)

    @property
    def chooses_few(self) -> bool:
        """A share of the units moves, whatever penalties say."""
        if self.free or self.keep or self.path == "network" or not self._whole_heads:
            return False
        return self.penalty in (None, "few")

    @property
    def few(self) -> Few:
        """How few units move, and how they are held."""
        shape: Shape = "symmetric" if self.turning == "learned" else "diagonal"
        if self.components.coarse:
            shape = "scalar"
        return Few(self.limits, self.share, self.agreement, self.ridge, shape)

    @property
    def _whole_heads(self) -> bool:
        """Heads with their mean."""
        return self.keep_mean and self.level == "head"

    @property
    def free(self) -> bool:
        """Nothing but a ridge, and the references where there are some, holds the gains."""
        return self.unbounded or bool(self.keep and self.bounds is None)

    @property
    def limits(self) -> Bounds:
        """The bounds, where there are some."""
        return READABLE if self.bounds is None else Bounds(*self.bounds)

    @property
    def turning(self) -> Axes:
        """The axes that gains act along."""
        if self.axes is not None:
            return self.axes
        learned = bool(self.keep) or self.chooses_few
        can = self._whole_heads and not self.components.coarse
        return "learned" if learned and can else "pca"

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
        spectra = turn(spectra, self.turning, split.seed)
        # found with the gains, axes may slant; a mean that has no gain is not to move with them
        if self.chooses_few and self.turning == "learned" and self.mean_gains:
            spectra = {unit: uncorrelated(spectrum) for unit, spectrum in spectra.items()}
        return self._along(problem, spectra)

    def _along(self, problem: Problem, spectra: Mapping[str, Spectrum]) -> DirectTerms:
        return direct_terms(
            problem.direct,
            spectra,
            keep_mean=self.keep_mean,
            mean_gains=self.mean_gains and self.keep_mean,
        )

    def learned(self, problem: Problem, split: Split) -> tuple[DirectTerms, FloatArray | None]:
        """The same along learned axes, with λ − 1 to begin with, where axes are to be learned: by
        the clips that fit, so that held-out ones choose for axes they did not make."""
        fixed = self.terms(problem, split)
        if self.turning != "learned":
            return fixed, None
        kept = held_in(references_of(self.references, problem), fixed, problem.head)
        loss = objective(self.objective or problem.objective, problem.judge.at(split.fit))
        every = torch.arange(len(split.fit))
        clips = fixed.at(split.fit), lambda latent: loss(problem.from_latent(latent), every)
        held = [
            (part.terms, partial(_held_by, part))
            for part in drifts(kept, self.hold, everyone=False)
        ]
        found = learned_axes(clips, self.regularity.bounds, held)
        return self._along(problem, found.spectra), found.change

    def start(self, problem: Problem, split: Split) -> NetworkGains:
        """Gains of 1 inside the network, in the spectra of pooled vectors of the training clips."""
        units = chosen_units(problem.sites, self.level, self.stages)
        spectra = network_spectra(problem.vectors, units, split.train)
        given = identity_gains(
            turn(kept_parts(spectra, self.components), self.turning, split.seed),
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
        if self.chooses_few:
            found = self._few(problem, split, lesson)
        else:
            how = self.regularity
            if problem.judge.own and self.free:
                how = replace(how, strengths=OF_CAPTIONS)
            terms, start = self.learned(problem, split)
            found = fit_direct(terms, problem.head, lesson, how, keep, start)
        terms = found.terms
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(found.values, torch.as_tensor(split.test)))
        gains = terms.gains(found.values, {**problem.about, "fold": split.name, **found.notes})
        fitted = n_gains(gains)
        if self.turning == "learned":  # a rotation of k axes is k (k − 1) / 2 numbers more
            fitted += sum(k * (k - 1) // 2 for k in terms.sizes)
        return Fitted(problem.scores(joint), fitted, gains, found.notes)

    def _few(self, problem: Problem, split: Split, lesson: Lesson) -> Settled:
        """A share of all heads, so that sets of stages are compared at the same number of them."""
        coarse = self.components.coarse
        fine = replace(self, components=ALL, axes="pca") if coarse else self
        terms = fine.terms(problem, split)
        heads = sum(site.n_heads for site in problem.sites)
        few = replace(self.few, share=min(1.0, self.share * heads / len(terms.units)))
        found = fit_few(terms, problem.head, lesson, few)
        return one_gain_a_unit(found, self.terms(problem, split)) if coarse else found

    def _inside(self, problem: Problem, split: Split) -> Fitted:
        streams = problem.encoder
        gains = self.start(problem, split)
        embed = streams.embed(gains)
        lesson = lesson_of(problem, split, self.objective)
        search = self.search(split.seed)
        choice = fit_inside(embed, list(gains.parameters()), lesson, search, gains.by_unit)
        found = gains.gains()
        found = replace(found, fitted_on={**found.fitted_on, **choice.notes})
        return Fitted(scores_of(problem, split.test, embed), n_gains(found), found, choice.notes)

    def search(self, seed: int) -> Search:
        """The settings to choose among inside the network."""
        settings = self.settings or NETWORK
        bounds = UNBOUNDED if self.free else self.limits
        settings = replace(settings, seed=seed, bounds=bounds)
        strengths: tuple[float, ...] = ()
        if not settings.strength and not self.free:
            kind = self.regularity.penalty
            strengths = INSIDE[kind]
            settings = replace(settings, penalty=kind, strength=strengths[-1])
        rates = self.rates or (RATES if self.settings is None else (settings.learning_rate,))
        options = tuple(replace(settings, learning_rate=rate) for rate in rates)
        return Search(options, strengths, FEW_SHOT_NETWORK_EPOCHS)


def _held_by(part: Drift, latent: torch.Tensor) -> torch.Tensor:
    """What it costs that reference clips go elsewhere while axes are learned."""
    return AXES_HOLD * part.of(latent)
