"""What a reader of scores must know of the clips behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypedDict

from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import JointEmbedder
from residual_audio.models.training_data import HeardBefore, heard_before

N_RESAMPLES = 1000
"""Bootstrap resamples behind an interval, unless more are asked for."""


class ClipsRead(Protocol):
    @property
    def skipped(self) -> Mapping[str, str]:
        """Clips that could not be read, and why."""

    @property
    def remarks(self) -> Mapping[str, str]:
        """Clips that can hardly be heard, and in what way."""


class ClipNotes(TypedDict):
    """In the details of every result."""

    skipped: dict[str, str]
    remarks: dict[str, str]
    heard_before: HeardBefore
    """Which of the clips the model was trained on."""


def clip_notes(model: JointEmbedder, dataset: Dataset, heard: ClipsRead) -> ClipNotes:
    return {
        "skipped": dict(heard.skipped),
        "remarks": dict(heard.remarks),
        "heard_before": heard_before(model.trained_on, dataset),
    }
