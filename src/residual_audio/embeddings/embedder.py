"""What embeds sound and text, and how it is asked to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from residual_audio.models.training_data import TrainingData
from residual_audio.passes.embed import Embedder
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import Hearer

Vectors = npt.NDArray[np.float32]
"""[row, joint], of unit length."""


class JointEmbedder(Embedder, Hearer, Protocol):
    """A model with both sides in one space, as far as evaluations need to know it."""

    name: str
    family: str
    sha256: str
    """Of the weights: what cached embeddings are filed under; may be empty."""
    logit_scale: float
    trained_on: tuple[TrainingData, ...] | None
    """What it has heard while it learned; None where nobody knows."""

    @property
    def text(self) -> object | None:
        """The text tower; None where the model only hears."""

    def embed_text(self, texts: Sequence[str]) -> Vectors:
        """A model without a text side says so."""


@dataclass(frozen=True)
class EmbeddingSettings(Hearing):
    """How clips are heard, and whether their vectors are kept: what every evaluation passes on."""

    cache: bool = True
    """Whether what was computed before is read, and what is computed is kept."""


DEFAULT = EmbeddingSettings()
