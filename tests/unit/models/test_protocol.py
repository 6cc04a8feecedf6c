"""Every encoder says all that is asked of one."""

from __future__ import annotations

import pytest
import torch
from tiny_model import CONFIG

from residual_audio.models.encoder import Encoder
from residual_audio.models.htsat import HTSAT
from residual_audio.models.rotary import Rotary, RotaryConfig
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.reweight.prune import prune_heads


def vit() -> ViT:
    torch.manual_seed(0)
    return ViT(ViTConfig(8, 2, 4, 16, n_mels=16, n_frames=32, norm_eps=1e-6, patch=(8, 8)))


def rotary() -> Rotary:
    torch.manual_seed(0)
    return Rotary(RotaryConfig(8, 2, 4, 6, 16, n_features=16, norm_eps=1e-6, theta=100.0))


@pytest.mark.parametrize(
    "encoder",
    [HTSAT(CONFIG).eval(), vit().eval(), rotary().eval()],
    ids=["htsat", "vit", "rotary"],
)
def test_heads_leave_the_weights_of_any_encoder(encoder: Encoder) -> None:
    site = encoder.sites[2]
    assert encoder.block(site).n_heads == site.n_heads

    def without(heads: torch.Tensor) -> torch.Tensor:
        heads = heads.clone()
        heads[:, :, 1] = 0
        return heads

    frames = 51 if isinstance(encoder, HTSAT) else 32
    features = torch.randn(2, frames, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = encoder.encode(features, edit={(site, "raw"): without}).latent
        small = prune_heads(encoder, [str(site.heads[1])])
        torch.testing.assert_close(small.encode(features).latent, want, atol=1e-5, rtol=1e-4)
    assert small.block(site).n_heads == site.n_heads - 1
