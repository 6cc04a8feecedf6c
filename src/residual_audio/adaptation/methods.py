"""Methods of the comparison that need no encoder pass; each is fitted on training clips alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.adaptation.problem import Problem, Split
from residual_audio.direct.joint_module import joint_of_module
from residual_audio.reweight.closed_form import LeastSquares, centred_targets
from residual_audio.reweight.fit import Embed, FitSettings, fit
from residual_audio.reweight.gains import n_gains
from residual_audio.reweight.objectives import Objective, objective
from residual_audio.reweight.rules import STRATEGIES, Ground
from residual_audio.reweight.spectra import Axes, Components, turn, unit_names
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.types import FloatArray, Gains

# where no clip can be spared to choose them (one to three clips a class)
FEW_SHOT_EPOCHS, FEW_SHOT_RATE = 15, 0.1
ALL = Components()
# Chosen by the loss on held-out clips of training parts, never by a test part: twice the rate gives
# in 20 epochs what half of it gives in 30.
DEFAULTS = FitSettings(epochs=20)
RATES = (0.1, 1.0)
# share of the epochs after which rates and strengths are compared
HEAT = 0.2


@dataclass(frozen=True)
class Fitted:
    """What one method made of one split."""

    scores: FloatArray
    """[test clip, class]"""
    n_parameters: int
    """Numbers that were chosen by looking at training clips."""
    seconds: float
    gains: Gains | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    name: str
    kind: str
    """reference, residual, control, rule, baseline or network."""
    fit: Callable[[Problem, Split, int], Fitted]
    about: str = ""
    runs_encoder: bool = False
    """Such methods share one model and take all cores, so they run one after another."""


def zero_shot(problem: Problem, split: Split, seed: int) -> Fitted:
    return Fitted(problem.scores(problem.joint[split.test]), 0, 0.0)


def prompt_ensemble(problem: Problem, split: Split, seed: int) -> Fitted:
    assert problem.ensemble is not None
    return Fitted(problem.scores(problem.joint[split.test], problem.ensemble), 0, 0.0)


@dataclass(frozen=True)
class Residual:
    """Gains on the direct path."""

    level: str = "head"
    stages: tuple[int, ...] | None = None
    components: Components = ALL
    axes: Axes = "pca"
    keep_mean: bool = True
    mean_gains: bool = True
    """Also a gain of every unit's mean."""
    settings: FitSettings = DEFAULTS
    l2: tuple[float, ...] = (0.0,)
    rates: tuple[float, ...] = RATES
    """Candidates, of which the held-out clips choose; `settings` has the one without a choice."""
    objective: str = "cross-entropy"

    def terms(self, problem: Problem, split: Split, seed: int) -> DirectTerms:
        units = unit_names(problem.sites, self.level, self.stages)
        spectra = problem.spectra(units, split.train, self.components)
        return direct_terms(
            problem.direct,
            turn(spectra, self.axes, seed),
            keep_mean=self.keep_mean,
            mean_gains=self.mean_gains and self.keep_mean,
        )

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        terms = self.terms(problem, split, seed)
        settings = self.settings
        if self.components.coarse:  # whole contributions are large: take them in one piece
            settings = replace(
                settings, batch_size=None, epochs=settings.epochs + settings.epochs // 2
            )
        values, notes = fit_gains(
            problem, split, terms, settings, self.l2, self.rates, seed, self.objective
        )
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(values, torch.as_tensor(split.test)))
        gains = terms.gains(values, problem.about | {"fold": split.name, **notes})
        seconds = time.perf_counter() - start
        return Fitted(problem.scores(joint), n_gains(gains), seconds, gains, notes)


def fit_gains(
    problem: Problem,
    split: Split,
    terms: DirectTerms,
    settings: FitSettings,
    l2: Sequence[float],
    rates: Sequence[float],
    seed: int,
    weights: str = "cross-entropy",
) -> tuple[Tensor, dict[str, Any]]:
    """λ as one vector; epochs, rate and l2 chosen on the held-out clips, then fitted on both."""
    settings = replace(settings, seed=seed)
    # training clips first and held-out clips last, so that both are slices of one block
    order = np.concatenate([split.fit, split.held_out])
    local, judge = terms.at(order), problem.judge.at(order)
    loss = objective({weights: 1.0}, judge)
    everyone = np.arange(len(order))
    train, held = everyone[: len(split.fit)], everyone[len(split.fit) :]

    def start() -> tuple[Tensor, Embed]:
        values = torch.ones(local.n_gains, requires_grad=True)
        return values, lambda rows: problem.from_latent(local.latent(values, rows))

    options = [replace(settings, l2=p, learning_rate=r) for r in rates for p in l2]
    return fit_chosen(start, loss, train, held, options)


def fit_chosen(
    start: Callable[[], tuple[Tensor, Embed]],
    loss: Objective,
    train: np.ndarray,
    held: np.ndarray,
    options: list[FitSettings],
) -> tuple[Tensor, dict[str, Any]]:
    """Settings and epochs by the loss on held-out clips, then fitted on both parts."""
    if not len(held):
        values, embed = start()
        chosen = replace(options[0], learning_rate=FEW_SHOT_RATE)
        fit(embed, [values], loss, train, None, chosen, epochs=FEW_SHOT_EPOCHS)
        return values.detach(), {"epochs": FEW_SHOT_EPOCHS, "l2": chosen.l2}

    def try_out(option: FitSettings, epochs: int) -> tuple[float, int]:
        values, embed = start()
        history = fit(embed, [values], loss, train, held, option, epochs=epochs)
        return min(history.held_out_loss), history.best_epoch

    if len(options) > 1:  # a short heat; the winner runs the whole way
        heat = max(1, round(HEAT * options[0].epochs))
        options = sorted(options, key=lambda option: try_out(option, heat)[0])
    chosen = options[0]
    best, epochs = try_out(chosen, chosen.epochs)
    values, embed = start()
    if epochs:
        fit(embed, [values], loss, np.concatenate([train, held]), None, chosen, epochs=epochs)
    notes = {"epochs": epochs, "rate": chosen.learning_rate, "l2": chosen.l2, "held_out_loss": best}
    return values.detach(), notes


@dataclass(frozen=True)
class ClosedForm:
    """Gains on the direct path by least squares on the class scores."""

    level: str = "head"
    stages: tuple[int, ...] | None = None
    components: Components = ALL
    alphas: tuple[float, ...] = tuple(np.geomspace(1e-3, 1e3, 7))
    margins: tuple[float, ...] = (1.0, 2.0, 4.0)

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        how = Residual(self.level, self.stages, self.components, mean_gains=False)
        terms = how.terms(problem, split, seed)
        texts = problem.judge.texts.numpy().astype(np.float64)
        texts = texts - texts.mean(0)
        step = joint_of_module(problem.head).derivative(problem.latent[split.train].mean(0)[None])
        length = float(np.linalg.norm(problem.joint[split.train], axis=1).mean())
        to_classes = step @ texts.T / length
        linear = (problem.latent.astype(np.float64)) @ to_classes
        offset = problem.joint[split.train] @ texts.T / length - linear[split.train]
        scores_now = linear + offset.mean(0)
        spread = float(scores_now[split.train].std()) * len(problem.classes) ** 0.5
        options = [(m, a) for m in self.margins for a in self.alphas]
        rows = split.fit if len(split.held_out) else split.train
        system = LeastSquares(terms, rows, to_classes, scores_now[rows])
        best: tuple[float, float, float] = (
            np.inf,
            self.margins[0],
            self.alphas[len(self.alphas) // 2],
        )

        def targets(rows: np.ndarray, margin: float) -> FloatArray:
            return centred_targets(problem.codes[rows], len(problem.classes), margin * spread)

        if len(split.held_out):
            judged = objective({"cross-entropy": 1.0}, problem.judge)
            held = torch.as_tensor(split.held_out)
            wanted = [targets(rows, margin) for margin in self.margins]
            for alpha in self.alphas:
                for margin, values in zip(self.margins, system.solve(wanted, alpha), strict=True):
                    with torch.no_grad():
                        loss = float(judged(problem.from_latent(terms.latent(values, held)), held))
                    best = min(best, (loss, margin, alpha))
            system = LeastSquares(terms, split.train, to_classes, scores_now[split.train])
        _, margin, alpha = best
        values = system.solve([targets(split.train, margin)], alpha)[0]
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(values, torch.as_tensor(split.test)))
        notes = {"alpha": alpha, "margin": margin, "candidates": len(options)}
        gains = terms.gains(values, problem.about | {"fold": split.name, **notes})
        seconds = time.perf_counter() - start
        return Fitted(problem.scores(joint), n_gains(gains), seconds, gains, notes)


@dataclass(frozen=True)
class Rule:
    """Gains by a rule of `reweight.strategies`, on the direct path."""

    name: str
    stages: tuple[int, ...] | None = None

    def __call__(self, problem: Problem, split: Split, seed: int) -> Fitted:
        start = time.perf_counter()
        units = unit_names(problem.sites, "head", self.stages)
        spectra = problem.spectra(units, split.train, Components())
        terms = direct_terms(problem.direct, spectra)
        ends = np.cumsum(terms.sizes)
        place = {u: slice(e - n, e) for u, n, e in zip(terms.units, terms.sizes, ends, strict=True)}
        train = terms.amplitudes[split.train].numpy()
        step = joint_of_module(problem.head).derivative(problem.latent[split.train].mean(0)[None])
        ground = Ground(
            spectra,
            problem.sites,
            coordinates=lambda unit: train[:, place[unit]],
            codes=problem.codes[split.train],
            joint_axes=lambda unit: spectra[unit].basis @ step,
            texts=problem.judge.texts.numpy(),
            about={"path": "direct", "fitted_on": problem.about | {"rule": self.name}},
        )
        gains = STRATEGIES[self.name](ground)
        with torch.no_grad():
            latent = terms.latent(terms.vector(gains), torch.as_tensor(split.test))
            joint = problem.from_latent(latent)
        # a rule that looks at no label chooses nothing by training clips but its axes
        chosen = n_gains(gains) if self.name == "fisher" else 0
        return Fitted(problem.scores(joint), chosen, time.perf_counter() - start, gains)
