"""HTS-AT at the real tiny size with random weights, for benchmarks and tests; audio only."""

from __future__ import annotations

import hashlib

import torch

from residual_audio.audio import specs
from residual_audio.errors import ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP


def load(ref: str) -> AudioTextModel:
    """`ref` is the seed; empty means 0."""
    if ref and not ref.isdecimal():
        raise ModelError(f"'htsat-tiny-random:{ref}': the seed must be a whole number")
    seed = int(ref or 0)
    encoder = HTSAT(HTSATConfig())
    head = MLP(encoder.config.latent, 512, 512)
    generator = torch.Generator().manual_seed(seed)
    digest = hashlib.sha256()
    for module in (encoder, head):
        for name, value in module.state_dict().items():
            if value.is_floating_point() and not name.endswith(("running_mean", "running_var")):
                # Norm scales near 1, everything else small: activations stay of order 1.
                scale = (
                    name.endswith("norm.weight") or "norm1.weight" in name or "norm2.weight" in name
                )
                noise = torch.randn(value.shape, generator=generator)
                value.copy_(1 + 0.1 * noise if scale else 0.05 * noise)
            digest.update(value.numpy().tobytes())
    encoder.mel_norm.running_mean.fill_(-40.0)  # type: ignore[union-attr, operator]
    encoder.mel_norm.running_var.fill_(400.0)  # type: ignore[union-attr, operator]
    model = AudioTextModel(
        name=f"htsat-tiny-random:{seed}",
        family="random",
        front_end=build_front_end(specs.HF),
        encoder=encoder,
        head=head,
        text=None,
        logit_scale=100.0,
        sha256=digest.hexdigest(),
    )
    model.trained_on = ()
    return model
