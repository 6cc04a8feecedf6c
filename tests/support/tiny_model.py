"""A whole audio–text model, small enough to run a clip in a millisecond; random weights."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from residual_audio.audio.frontend import LogMel
from residual_audio.benchmarks.small_model import CONFIG, SPEC
from residual_audio.models.htsat import HTSAT
from residual_audio.models.joint import MLP, JointHead
from residual_audio.surface.model import Model


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
