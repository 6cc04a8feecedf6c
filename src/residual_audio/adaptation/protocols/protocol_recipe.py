"""What a published protocol does, said as data, in the two variants that stand side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Variant = Literal["as published", "corrected"]
Stages = tuple[int, ...]


@dataclass(frozen=True)
class Training:
    """How λ is found."""

    learning_rate: float
    epochs: int
    """So many, or at most so many."""
    stop: Literal["last epoch", "training accuracy", "held-out loss"]
    batch_size: int
    weight_decay: float = 0.0
    """0: Adam; else AdamW, which pulls λ to 0."""
    patience: int = 5
    """Epochs without a better one before stopping; of no use with `last epoch`."""


@dataclass(frozen=True)
class ProtocolRecipe:
    """One variant of a protocol."""

    variant: Variant
    level: Literal["stage", "head"]
    """What shares a basis and λ: all blocks of a stage, or a head."""
    prompt: str
    training: Training
    keep_mean: bool
    own_temperature: bool
    """The model's, or 1."""
    torn_groups: bool = False
    """Folds are drawn clip by clip, so that two cuts of one recording may be on both sides."""
    variance: float | None = None
    """λ of the components beyond this share of the variance starts at 0."""
    basis_clips: int | None = None
    """So many clips of the training part are for the basis alone."""
    linear: Literal["five epochs", "chosen strength"] | None = None
    """The linear column."""


@dataclass(frozen=True)
class PublishedProtocol:
    """Two variants of one protocol, the sets of stages they are tried on, and what differs."""

    name: str
    published: ProtocolRecipe
    corrected: ProtocolRecipe
    stage_sets: tuple[Stages, ...]
    differences: tuple[str, ...]
    """What was changed, and why; the last ones: what the publication leaves open."""
    sweep_rates: tuple[float, ...] = ()
    sweep_epochs: tuple[int, ...] = ()
    samples: tuple[tuple[str, int], ...] = ()
    """Data set → clips that are drawn from it, class by class."""
    seed: int = 0

    def recipes(self) -> tuple[ProtocolRecipe, ProtocolRecipe]:
        return self.published, self.corrected

    def n_samples(self, dataset: str) -> int | None:
        """Clips to draw; None for all."""
        return dict(self.samples).get(dataset)

    def sets_for(self, stages: Sequence[int]) -> list[Stages]:
        """The sets that an encoder of these stages has."""
        return [one for one in self.stage_sets if set(one) <= set(stages)]
