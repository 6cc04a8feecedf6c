"""Whisper's architecture without its training."""

from __future__ import annotations

import pytest
import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from residual_audio.errors import ModelError
from residual_audio.models.registry import load_model


def test_it_has_the_sizes_of_the_released_tiny_model() -> None:
    model = load_model("whisper-tiny-random", device="cpu")
    # transformers' defaults are those of openai/whisper-tiny
    config = WhisperConfig()
    theirs = sum(p.numel() for p in WhisperEncoder(config).parameters())
    # ours keeps a (zero) bias for the keys, theirs has none
    ours = sum(p.numel() for p in model.encoder.parameters())
    assert ours - theirs == config.encoder_layers * config.d_model
    assert len([site for site in model.encoder.sites if site.kind == "attention"]) == 4


def test_the_seed_decides_the_weights() -> None:
    first = load_model("whisper-tiny-random:1", device="cpu")
    assert load_model("whisper-tiny-random:1", device="cpu").sha256 == first.sha256
    assert load_model("whisper-tiny-random:2", device="cpu").sha256 != first.sha256
    with pytest.raises(ModelError, match="whole number"):
        load_model("whisper-tiny-random:x", device="cpu")


def test_activations_stay_of_a_usable_size() -> None:
    model = load_model("whisper-tiny-random", device="cpu")
    waves = 0.1 * torch.randn(2, model.spec.n_samples, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        latent = model.encode(model.front_end(waves)).latent
    assert torch.isfinite(latent).all()
    assert not torch.allclose(latent[0], latent[1], atol=1e-4)
