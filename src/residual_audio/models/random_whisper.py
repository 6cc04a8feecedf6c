"""Whisper's encoder at the size of `tiny` with random weights: what of a finding was there before
training? Audio only."""

from __future__ import annotations

import hashlib

import torch

from residual_audio.audio import specs
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.joint import Identity
from residual_audio.models.vit import ViT, ViTConfig

TINY = ViTConfig(
    width=384,
    depth=4,
    n_heads=6,
    hidden=1536,
    n_mels=80,
    n_frames=3000,
    norm_eps=1e-5,
    stem="conv",
    patch=(1, 1),
    stride=(1, 1),
)


def load(ref: str) -> AudioTextModel:
    """`ref` is the seed; empty means 0."""
    if ref and not ref.isdecimal():
        raise ModelError(f"'whisper-tiny-random:{ref}': the seed must be a whole number")
    seed = int(ref or 0)
    encoder = ViT(TINY)
    generator = torch.Generator().manual_seed(seed)
    digest = hashlib.sha256()
    with torch.no_grad():
        for name, value in encoder.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            is_scale = "norm" in name and name.endswith("weight")
            # products keep the size of what enters them, whatever their width
            inner = value[0].numel() ** 0.5 if value.ndim > 1 else 50.0
            value.copy_(1 + 0.1 * noise if is_scale else noise / inner)
            digest.update(value.numpy().tobytes())
    model = AudioTextModel(
        name=f"whisper-tiny-random:{seed}",
        family="random",
        front_end=build_front_end(specs.WHISPER),
        encoder=encoder,
        head=Identity(TINY.latent),
        text=None,
        logit_scale=1.0,
        sha256=digest.hexdigest(),
    )
    model.trained_on = ()
    return model
