"""Vectors of waveforms or files, whatever loader the model came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from residual_audio.models.clap import AudioTextModel
from residual_audio.surface.model import Model


def embed_audio(model: AudioTextModel, items: Sequence[Any], **options: Any) -> np.ndarray:
    given = {"sample_rate": model.sample_rate_hz, **options}
    return Model.of(model).embed_audio(items, **given)
