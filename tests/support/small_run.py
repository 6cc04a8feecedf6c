"""A small random model on a few synthetic sounds, and the store of it."""

from __future__ import annotations

import torch
from tiny_model import HashedText

from residual_audio.audio.specs import NANO
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP

CLASSES = 4


class Words(HashedText):
    """A text side as a model folder names it."""

    kind = "words"
    config: dict = {}  # noqa: RUF012


def small_model() -> AudioTextModel:
    """Random weights, four stages, a joint head of two layers."""
    torch.manual_seed(0)
    config = HTSATConfig(
        embed_dim=8, depths=(1, 1, 2, 1), n_heads=(1, 2, 4, 8), window=2, spec_size=64, n_mels=64
    )
    encoder = HTSAT(config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
        encoder.mel_norm.running_mean.fill_(-30.0)
        encoder.mel_norm.running_var.fill_(300.0)
    # 64 frames: the log-mel of a short window
    spec = type(NANO)(**{**NANO.to_dict(), "n_samples": 32_000})
    return AudioTextModel(
        name="small",
        family="test",
        front_end=build_front_end(spec),
        encoder=encoder,
        head=MLP(64, 16, 12),
        text=Words(),
        logit_scale=10.0,
        sha256="c" * 64,
    )


def small_dataset() -> Dataset:
    """Synthetic sounds of four classes."""
    whole = load_dataset("synthetic", n_clips=240)
    return whole.select(classes=whole.classes[:CLASSES])
