"""A control: the same method with the labels of whole groups exchanged among training clips.

What it still gains over zero-shot is not learned from the labels; the difference to the real labels
is the selectivity of the method (Hewitt & Liang 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.methods.method import Fitted
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem


@dataclass(frozen=True)
class Shuffled:
    """A method fitted to labels that say nothing; scored against the real ones."""

    method: ResiDual = field(default_factory=ResiDual)

    @property
    def runs_encoder(self) -> bool:
        return self.method.runs_encoder

    def offered(self, problem: Problem) -> bool:
        return self.method.offered(problem)

    def fit(self, problem: Problem, split: Split) -> Fitted:
        others = exchanged_by_group(problem, split)
        positive = problem.judge.positive[torch.from_numpy(others)]
        return self.method.fit(
            replace(problem, judge=replace(problem.judge, positive=positive)), split
        )


def exchanged_by_group(problem: Problem, split: Split) -> np.ndarray:
    """[clip]: whose labels a clip takes; groups of the training part exchange theirs, drawn by the
    split's seed, and clips of one group stay alike. Other clips keep their own."""
    rng = np.random.default_rng(split.seed)
    taken = np.arange(len(problem))
    names = np.asarray(problem.groups)
    groups, first, number = np.unique(names[split.train], return_index=True, return_inverse=True)
    source = split.train[first][rng.permutation(len(groups))]
    taken[split.train] = source[number]
    return taken
