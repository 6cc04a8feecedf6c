"""Whisper's encoders pooled over the positions that hear something, instead of over all."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.vit import ViT

SOUNDING = "?pool=sounding"
"""Behind the name of a model."""


def pool_where_it_sounds(model: AudioTextModel) -> None:
    """From now on the latent and every mean over tokens leave out positions of mere padding.

    It is another model to everybody else: its digest changes with it.
    """
    encoder = model.encoder
    if not isinstance(encoder, ViT) or encoder.config.stem != "conv":
        raise ModelError(
            f"'{model.name}' cannot be pooled where it sounds: that is for Whisper's encoders, "
            "whose window of 30 s is filled up with silence"
        )
    encoder.config = replace(encoder.config, pool="sounding")
    model.sha256 = hashlib.sha256((model.sha256 + SOUNDING).encode()).hexdigest()


def pools_where_it_sounds(model: AudioTextModel) -> bool:
    """Whether a model is pooled so."""
    return isinstance(model.encoder, ViT) and model.encoder.config.pool == "sounding"
