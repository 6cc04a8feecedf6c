"""A whole audio–text model, small enough to run a clip in a millisecond; random weights."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from residual_audio.audio.frontend import LogMel
from residual_audio.benchmarks.small_model import CONFIG, SPEC
from residual_audio.models.encoder import Encoded
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP, JointHead
from residual_audio.surface.model import Model

WIDTH_8 = HTSATConfig(
    embed_dim=8, depths=(2, 2, 2, 2), n_heads=(1, 2, 4, 8), window=2, spec_size=64, n_mels=32
)
"""Two blocks a stage and every head 8 wide: gains of all heads have one shape."""


@dataclass
class Bare:
    """An encoder and a joint head, with nothing before them and no text side."""

    encoder: nn.Module
    head: nn.Module
    name: str = "tiny"

    def joint(self, encoded: Encoded) -> Tensor:
        return self.head(encoded)


def bare_model(seed: int = 0) -> Bare:
    """Weights larger than at initialisation, so that heads matter; nothing to be trained."""
    torch.manual_seed(seed)
    encoder = HTSAT(WIDTH_8).eval().requires_grad_(False)
    for parameter in encoder.parameters():
        if parameter.ndim > 1:
            parameter.mul_(3.0)
        else:
            parameter.add_(0.1 * torch.randn_like(parameter))
    return Bare(encoder, MLP(WIDTH_8.latent, 16, 12).requires_grad_(False))


def bare_features(n: int) -> Tensor:
    """[clip, frame, mel] as `bare_model` takes them."""
    return torch.randn(n, 100, WIDTH_8.n_mels, generator=torch.Generator().manual_seed(1))


class HashedText(nn.Module):
    """A text tower that gives each text its own fixed random vector."""

    def forward(self, texts: list[str]) -> Tensor:
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
            rows.append(torch.randn(12, generator=torch.Generator().manual_seed(seed)))
        return torch.stack(rows)


def tiny_model(seed: int = 0, text: bool = True, head: JointHead | None = None) -> Model:
    torch.manual_seed(seed)
    encoder = HTSAT(CONFIG)
    joint = head or MLP(encoder.config.latent, 16, 12)
    digest = hashlib.sha256()
    with torch.no_grad():
        for module in (encoder, joint):
            for name, parameter in module.named_parameters():
                if "norm" in name and name.endswith("weight"):
                    parameter.normal_(1.0, 0.2)
                else:
                    inner = 1 if parameter.ndim == 1 else parameter[0].numel() ** 0.5
                    parameter.normal_(0.0, 0.3 if parameter.ndim == 1 else 1.2 / inner)
                digest.update(parameter.numpy().tobytes())
    return Model(
        name="tiny",
        family="test",
        front_end=LogMel(SPEC),
        encoder=encoder,
        head=joint,
        text=HashedText() if text else None,
        logit_scale=20.0,
        sha256=digest.hexdigest(),
    )
