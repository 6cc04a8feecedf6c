"""What a method of adaptation is: a frozen config that can be fitted to one split of a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from residual_audio.adaptation.divisions import Split
from residual_audio.adaptation.problem import Problem
from residual_audio.models.peft_adapter import LowRankUpdate, Place
from residual_audio.reweight.trained_checkpoint import LeftBehind
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
    updates: Mapping[Place, LowRankUpdate] = field(default_factory=dict)
    weights: Sequence[tuple[Tensor, Tensor]] = ()
    """Parameters of the model and what they became; they were put back."""
    elsewhere: Callable[[Problem, np.ndarray], FloatArray] | None = None
    """Joint embeddings [clip, d] of clips of another run of the model, where gains do not say them
    and the classes of the training clips are not written into what was fitted."""

    def left(self) -> LeftBehind:
        """What can be written as a checkpoint."""
        return LeftBehind(self.gains, self.updates, self.weights)


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
