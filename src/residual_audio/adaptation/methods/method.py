"""What a method of adaptation is: a frozen config that can be fitted to one split of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.problem import Problem
from residual_audio.types import FloatArray, Gains


@dataclass(frozen=True)
class Fitted:
    """What one method made of one split."""

    scores: FloatArray
    """[test clip, class]"""
    n_parameters: int
    """Numbers that were chosen by looking at training clips."""
    gains: Gains | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What was chosen on the held-out clips."""


class Method(Protocol):
    """A config; everything random is drawn from the split's seed."""

    @property
    def runs_encoder(self) -> bool:
        """Such methods share one model and take all cores, so they run one after another."""

    def offered(self, problem: Problem) -> bool:
        """Whether the problem has what the method needs."""

    def fit(self, problem: Problem, split: Split) -> Fitted:
        """Fit on the training part, score the test part."""


class FromStore:
    """Methods that need nothing beyond the embeddings of a store."""

    @property
    def runs_encoder(self) -> bool:
        return False

    def offered(self, problem: Problem) -> bool:
        return True


class InEncoder:
    """Methods that run the encoder."""

    @property
    def runs_encoder(self) -> bool:
        return True

    def offered(self, problem: Problem) -> bool:
        return problem.streams is not None
