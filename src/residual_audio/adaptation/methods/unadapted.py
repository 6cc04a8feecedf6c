"""No adaptation: the model as it is, with its prompts or an ensemble of them."""

from __future__ import annotations

from dataclasses import dataclass

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.problem import Problem
from residual_audio.errors import InputError


@dataclass(frozen=True)
class ZeroShot(FromStore):
    """The class prompts of the store."""

    def fit(self, problem: Problem, split: Split) -> Fitted:
        return Fitted(problem.scores(problem.joint[split.test]), 0)


@dataclass(frozen=True)
class PromptEnsemble(FromStore):
    """The mean of several prompts a class."""

    def offered(self, problem: Problem) -> bool:
        return problem.ensemble is not None

    def fit(self, problem: Problem, split: Split) -> Fitted:
        if problem.ensemble is None:
            raise InputError("no prompt ensemble was given: name one with --ensemble")
        return Fitted(problem.scores(problem.joint[split.test], problem.ensemble), 0)
