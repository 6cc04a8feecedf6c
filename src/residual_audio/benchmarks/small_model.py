"""A whole encoder that runs a clip in a millisecond: for benches of what surrounds it."""

from __future__ import annotations

import torch

from residual_audio.audio.frontend import FrontEndSpec, LogMel
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP

SPEC = FrontEndSpec(
    sample_rate_hz=8000,
    n_samples=8000,
    n_fft=256,
    hop_length=160,
    n_mels=16,
    f_min_hz=50,
    f_max_hz=4000,
)
CONFIG = HTSATConfig(
    embed_dim=8, depths=(2, 1, 2, 1), n_heads=(2, 4, 4, 8), window=4, spec_size=32, patch=2,
    n_mels=16,
)  # fmt: skip


def small_model(seed: int = 0) -> AudioTextModel:
    """Random weights, the same for the same seed; no text side."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = HTSAT(CONFIG)
        head = MLP(encoder.config.latent, 16, 12)
    return AudioTextModel(
        name="small-random",
        family="bench",
        front_end=LogMel(SPEC),
        encoder=encoder,
        head=head,
        text=None,
        logit_scale=20.0,
        sha256=f"{seed:064x}",
    )
