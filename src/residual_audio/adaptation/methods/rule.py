"""Gains by a rule of `reweight.rules`, on the direct path: nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.direct.joint_module import joint_of_module
from residual_audio.errors import InputError
from residual_audio.reweight.axes import Components, chosen_units
from residual_audio.reweight.gains import n_gains
from residual_audio.reweight.rules import STRATEGIES, Ground
from residual_audio.reweight.terms import direct_terms


@dataclass(frozen=True)
class Rule(FromStore):
    """A rule by name, on the heads of these stages.

    >>> Rule("fisher", stages=(2, 3))
    Rule(name='fisher', stages=(2, 3))
    """

    name: str
    stages: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.name not in STRATEGIES:
            raise InputError(f"'{self.name}' is no rule: choose among {', '.join(STRATEGIES)}")

    def offered(self, problem: Problem) -> bool:
        return problem.contributions is not None

    def fit(self, problem: Problem, split: Split) -> Fitted:
        units = chosen_units(problem.sites, "head", self.stages)
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
            about={"path": "direct", "fitted_on": {**problem.about, "rule": self.name}},
        )
        gains = STRATEGIES[self.name](ground)
        with torch.no_grad():
            latent = terms.latent(terms.vector(gains), torch.as_tensor(split.test))
            joint = problem.from_latent(latent)
        # a rule that looks at no label chooses nothing by training clips but its axes
        chosen = n_gains(gains) if self.name == "fisher" else 0
        return Fitted(problem.scores(joint), chosen, gains)
