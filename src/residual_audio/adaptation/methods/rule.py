"""Gains by a rule of `reweight.rules`: nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.direct.joint_module import joint_of_module
from residual_audio.errors import InputError
from residual_audio.reweight.axes import (
    Components,
    chosen_units,
    network_spectra,
    what_gains_move,
)
from residual_audio.reweight.gains import n_gains
from residual_audio.reweight.rules import STRATEGIES, Ground, apply_rule
from residual_audio.types import FloatArray, Gains, parse_unit


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
        gains = rule_gains(problem, split.train, self)
        terms = problem.terms(chosen_units(problem.sites, "head", self.stages), split.train)
        with torch.no_grad():
            latent = terms.latent(terms.vector(gains), torch.as_tensor(split.test))
            joint = problem.from_latent(latent)
        # a rule that looks at no label chooses nothing by training clips but its axes
        chosen = n_gains(gains) if self.name == "fisher" else 0
        return Fitted(problem.scores(joint), chosen, gains)


def rule_gains(
    problem: Problem,
    rows: np.ndarray,
    rule: Rule,
    *,
    path: Literal["direct", "network"] = "direct",
    numbers: Mapping[str, float] | None = None,
) -> Gains:
    """Gains of a rule on the heads, in the spectra of these clips, on either path."""
    units = chosen_units(problem.sites, "head", rule.stages)
    if path == "network":
        spectra = network_spectra(problem.vectors, units, rows)
    else:
        spectra = problem.spectra(units, rows, Components())
    step = joint_of_module(problem.head).derivative(problem.latent[rows].mean(0)[None])

    def coordinates(unit: str) -> FloatArray:
        spectrum, name = spectra[unit], parse_unit(unit, problem.sites)
        if path == "network":
            own = problem.vectors(name)[rows]
        else:
            own = what_gains_move(problem.direct, name)[rows]
        return (own - spectrum.mean) @ spectrum.basis.T

    ground = Ground(
        spectra,
        problem.sites,
        coordinates=coordinates,
        codes=problem.codes[rows],
        # where a step inside the network leads is not a matter of one direction
        joint_axes=None if path == "network" else lambda unit: spectra[unit].basis @ step,
        texts=problem.judge.texts.numpy(),
        about={"path": path, "fitted_on": {**problem.about, "rule": rule.name}},
    )
    return apply_rule(rule.name, ground, numbers or {})
