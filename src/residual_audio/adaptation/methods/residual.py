"""ResiDual: a gain for each component of residual units, on the direct path or in the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from residual_audio.reweight.few import Few, fit_few, one_gain_a_unit
from residual_audio.reweight.fitting import Lesson, Settled, fit_direct, fit_inside
from residual_audio.reweight.gains import identity_gains, n_gains
from residual_audio.reweight.held_few import fit_held_few
from residual_audio.reweight.keep_in_place import Hold, KeepInPlace
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.objectives import parse_objective
from residual_audio.reweight.path import FREE, READABLE, Kind, Regularity
from residual_audio.reweight.penalty import UNBOUNDED, Bounds
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.reweight.turned import Shape
from residual_audio.reweight.uncorrelated import uncorrelated, within_classes
from residual_audio.types import Spectrum, Unit

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
RESIDUAL = ("head", "mlp")
"""What writes into the residual stream."""
OF_AN_MLP = 24
"""Components of an MLP beside heads where no number is asked for: as many as a head of HTS-AT has,
or of wider heads their number; all of them would be numbers by the hundred thousand."""
OF_CAPTIONS = (10.0, 3.0, 1.0, 0.3, 0.1)
"""Strengths of the ridge of free gains where each text has few clips: weaker ones only fit."""


@dataclass(frozen=True)
class ResiDual:
    """Gains of components, as the published method has them, and its controls as parameters.

    By default gains are bounded and few: units that are not worth their penalty stay exactly at 1.


    >>> method = ResiDual(stages=(2, 3), path="network")
    >>> method.levels, method.runs_encoder
    (('head',), True)
    >>> ResiDual().levels
    ('head', 'mlp')
    """

    level: str | None = None
    """head, attention, mlp, stage or output, or residual: heads, and beside them the strongest
    components of MLPs. None: residual where few units are chosen within bounds and no reference is
    kept, else head."""
    stages: tuple[int, ...] | None = None
    """None: all of them."""
    components: Components = ALL
    axes: Axes | None = None
    """None: learned together with the gains; principal ones without bounds or references, inside
    the network, and of units that are not heads."""
    whiten: Literal["all", "within"] = "all"
    """What components that are learned with the gains are uncorrelated over: all clips, or mostly
    clips as seen from the mean of their class, which bounded gains then reach further by."""
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
    share: float | None = None
    """Of all such units of the encoder, at most so many move (few), whatever stages they are taken
    from. None: 0.32, and all where references are kept."""
    agreement: float | None = None
    """Chosen gains are held so that edits of two parts of the clips have this cosine; 0: no such
    demand. None: 0.9 where that is asked at all: of bounded gains on the direct path, no reference
    kept."""
    ridge: float | None = None
    """How strongly the gains of few units are held, where nothing is to be chosen."""
    unbounded: bool = False
    """No bounds and a ridge penalty, its strength by the least held-out loss: a classifier written
    into the heads rather than a reweighting."""
    keep: str | tuple[str, ...] = ()
    """Runs (`RUN`, or folds of it: `RUN#1,2`) whose answers are held in place; `synthetic` is a run
    of the bundled sounds, made where it is not there yet."""
    max_loss: float | None = None
    """Share of right answers that may be lost there; None: 0.03."""
    hold: Hold | None = None
    """What of the reference clips is held in place; None: their answers."""
    settings: FitSettings | None = None
    """Of the descent inside the network; a strength there is taken as it is. None: what is good
    there, its rate and strength chosen by the held-out clips."""
    rates: tuple[float, ...] = ()
    """Learning rates of which the held-out clips choose, inside the network."""

    def __post_init__(self) -> None:
        if self.objective is not None:  # an unknown word is refused before anything is run
            parse_objective(self.objective)
        _ = self.few if self.chooses_few else self.regularity
        for refused, why in self._refusals():
            if refused:
                raise InputError(why)

    def _refusals(self) -> Iterator[tuple[bool, str]]:
        """What contradicts itself, or would be ignored without a word."""
        few, inside, penalty = self.chooses_few, self.path == "network", self.penalty
        yield (
            penalty == "few" and inside,
            ("few: of gains on the direct path; inside the network use group"),
        )
        yield (
            self.unbounded and self.bounds is not None,
            ("unbounded gains have no bounds: give one or the other"),
        )
        yield (
            self.free and not few and penalty not in (None, "ridge"),
            (f"without bounds the penalty is a ridge, not '{penalty}': give bounds as well"),
        )
        yield (
            self.share is not None and not few,
            ("a share of the units is chosen by the penalty few alone"),
        )
        yield self.ridge is not None and not few, "a ridge of its own has the penalty few alone"
        yield (
            self.axes == "learned" and not few,
            ("axes are learned with the gains of units by the penalty few alone"),
        )
        yield (
            self.whiten == "within"
            and (bool(self.keep) or self.turning != "learned" or not self.mean_gains),
            (
                "whitening within classes is of components learned together with few gains and "
                "those of means, without references kept: leave one of them out"
            ),
        )
        yield bool(self.keep) and inside, "reference runs can be kept on the direct path only"
        yield (
            self.agreement is not None and not self._compares_parts,
            (
                "edits of two parts agree, or not, where bounded gains of the direct path are "
                "chosen and no reference is kept: leave the agreement out"
            ),
        )
        yield (
            not self.keep and not (self.max_loss is None and self.hold is None),
            ("what may be lost, and what is held, is of reference runs: name some to keep"),
        )
        yield (
            not inside and (self.settings is not None or bool(self.rates)),
            ("settings and rates are of the descent inside the network (path network)"),
        )

    @property
    def _compares_parts(self) -> bool:
        """Whether edits of two parts of the clips are compared to say how strongly to hold them."""
        if self.chooses_few:
            return not self.keep and self.ridge is None
        return self.path == "direct" and not self.free and self.regularity.chooses

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
        return Regularity(kind, self.limits, agreement=self.demanded)

    @property
    def demanded(self) -> float:
        """The cosine that edits of two parts are to have."""
        return Few.agreement if self.agreement is None else self.agreement

    @property
    def chooses_few(self) -> bool:
        """A share of the units moves, whatever penalties say."""
        if self.path == "network" or not self._of_vectors or self.penalty not in (None, "few"):
            return False
        # along fixed axes, what nothing bounds is for a second-order method
        fixed = self.axes not in (None, "learned") or self.components.coarse
        return not (self.free and (fixed or (not self.keep and self.axes is None)))

    @property
    def few(self) -> Few:
        """How few units move, and how they are held."""
        shape: Shape = "symmetric" if self.turning == "learned" else "diagonal"
        if self.components.coarse:
            shape = "scalar"
        share = (1.0 if self.keep else Few.share) if self.share is None else self.share
        return Few(self.limits, share, self.demanded, self.ridge, shape)

    @property
    def levels(self) -> tuple[str, ...]:
        """Of the units that gains act on."""
        unsaid = self.level is None and self.chooses_few and not self.free and not self.keep
        if self.level == "residual" or unsaid:
            return RESIDUAL
        return (self.level or "head",)

    def units(self, problem: Problem) -> tuple[Unit, ...]:
        """Those of the stages that were asked for."""
        found = (chosen_units(problem.sites, level, self.stages) for level in self.levels)
        return tuple(unit for of_level in found for unit in of_level)

    @property
    def _of_vectors(self) -> bool:
        """Units that write into the residual stream, with their mean."""
        return self.keep_mean and self.level in (None, "head", "residual")

    @property
    def free(self) -> bool:
        """Nothing but a ridge, and the references where there are some, holds the gains."""
        return self.unbounded or bool(self.keep and self.bounds is None)

    @property
    def limits(self) -> Bounds:
        """The bounds, where there are some."""
        if self.free:
            return UNBOUNDED
        return READABLE if self.bounds is None else Bounds(*self.bounds)

    @property
    def turning(self) -> Axes:
        """The axes that gains act along."""
        if self.axes is not None:
            return self.axes
        return "learned" if self.chooses_few and not self.components.coarse else "pca"

    @property
    def runs_encoder(self) -> bool:
        return self.path == "network"

    def offered(self, problem: Problem) -> bool:
        there = problem.streams if self.path == "network" else problem.contributions
        if self.whiten == "within" and problem.judge.own:
            return False
        return there is not None and set(self.stages or ()) <= set(problem.stages)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        return self._inside(problem, split) if self.runs_encoder else self._direct(problem, split)

    def terms(self, problem: Problem, split: Split) -> DirectTerms:
        """Coordinates of all clips along the axes of the training clips, not learned ones."""
        spectra = turn(self._spectra(problem, split.train), self.turning, split.seed)
        # found with the gains, axes may slant; a mean that has no gain is not to move with them
        if self.chooses_few and self.turning == "learned" and self.mean_gains:
            of_classes = self.whiten == "within"
            # coordinates are of all training clips, held-out ones too, as the axes are
            within = self._within_classes(problem, spectra, split.train) if of_classes else {}
            spectra = {unit: uncorrelated(s, within.get(unit)) for unit, s in spectra.items()}
        return self._along(problem, spectra)

    def _within_classes(
        self, problem: Problem, spectra: Mapping[str, Spectrum], rows: np.ndarray
    ) -> dict[str, np.ndarray]:
        """How coordinates vary among clips of one class."""
        if problem.judge.own:
            raise InputError("captions are a class each: whiten over all clips instead")
        terms = self._along(problem, spectra).at(rows)
        of_units = terms.amplitudes.double().split(terms.sizes, 1)
        codes = problem.codes[rows]
        pairs = zip(terms.units, of_units, strict=True)
        return {unit: within_classes(own.numpy(), codes) for unit, own in pairs}

    def _spectra(self, problem: Problem, rows: np.ndarray) -> dict[str, Spectrum]:
        """Of all units, MLPs beside heads cut to their strongest components."""
        units, parts = self.units(problem), self.components
        mlps = [unit for unit in units if unit.kind == "mlp"] if len(self.levels) > 1 else []
        most = max(OF_AN_MLP, *(site.d_head for site in problem.sites))
        cut = parts if parts.coarse else replace(parts, k=parts.k or most)
        heads = [unit for unit in units if unit not in mlps]
        found = problem.spectra(heads, rows, parts)
        return found | (problem.spectra(mlps, rows, cut) if mlps else {})

    def _along(self, problem: Problem, spectra: Mapping[str, Spectrum]) -> DirectTerms:
        return direct_terms(
            problem.direct,
            spectra,
            keep_mean=self.keep_mean,
            mean_gains=self.mean_gains and self.keep_mean,
        )

    def start(self, problem: Problem, split: Split) -> NetworkGains:
        """Gains of 1 inside the network, in the spectra of pooled vectors of the training clips."""
        spectra = network_spectra(problem.vectors, self.units(problem), split.train)
        given = identity_gains(
            turn(kept_parts(spectra, self.components), self.turning, split.seed),
            mean_gains=self.mean_gains and self.keep_mean,
            keep_mean=self.keep_mean,
            fitted_on={**problem.about, "fold": split.name},
        )
        return NetworkGains(given, problem.sites)

    def _direct(self, problem: Problem, split: Split) -> Fitted:
        lesson = lesson_of(problem, split, self.objective)
        keep = self.kept(problem) if self.keep else None
        if self.chooses_few:
            found = self._few(problem, split, lesson, keep)
        else:
            how = self.regularity
            if problem.judge.own and self.free:
                how = replace(how, strengths=OF_CAPTIONS)
            found = fit_direct(self.terms(problem, split), problem.head, lesson, how, keep)
        terms = found.terms
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(found.values, torch.as_tensor(split.test)))
        how_made = {"fold": split.name, "whiten": self.whiten}
        gains = terms.gains(found.values, {**problem.about, **how_made, **found.notes})
        fitted = n_gains(gains)
        if self.turning == "learned":  # a rotation of k axes is k (k − 1) / 2 numbers more
            fitted += sum(k * (k - 1) // 2 for k in terms.sizes)
        return Fitted(problem.scores(joint), fitted, gains, found.notes)

    def kept(self, problem: Problem) -> KeepInPlace:
        """What is held in place, and how much of it may be lost."""
        references = references_of(self.references, problem)
        max_loss = KeepInPlace.max_loss if self.max_loss is None else self.max_loss
        return KeepInPlace(references, max_loss, self.hold or KeepInPlace.hold)

    def few_of(self, problem: Problem, terms: DirectTerms) -> Few:
        """A share of all units, so that sets of stages are compared at the same number of them."""
        every = len(replace(self, stages=None).units(problem))
        return replace(self.few, share=min(1.0, self.few.share * every / len(terms.units)))

    def _few(
        self, problem: Problem, split: Split, lesson: Lesson, keep: KeepInPlace | None
    ) -> Settled:
        coarse = self.components.coarse
        fine = replace(self, components=ALL, axes="pca") if coarse else self
        terms = fine.terms(problem, split)
        few = self.few_of(problem, terms)
        if keep is not None:
            found = fit_held_few(terms, problem.head, lesson, few, keep)
        else:
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
        settings = replace(settings, seed=seed, bounds=self.limits)
        strengths: tuple[float, ...] = ()
        if not settings.strength and not self.free:
            kind = self.regularity.penalty
            strengths = INSIDE[kind]
            settings = replace(settings, penalty=kind, strength=strengths[-1])
        rates = self.rates or (RATES if self.settings is None else (settings.learning_rate,))
        options = tuple(replace(settings, learning_rate=rate) for rate in rates)
        return Search(options, strengths, FEW_SHOT_NETWORK_EPOCHS)
