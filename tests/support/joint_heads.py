"""One small joint head of every kind that a store can keep."""

from __future__ import annotations

import torch
from tiny_model import CONFIG

from residual_audio.models.joint import (
    GELUMLP,
    MLP,
    Identity,
    JointHead,
    Linear,
    NormLinear,
    ResidualMLP,
    UnitMLP,
)

D = CONFIG.latent
KINDS = (
    "identity",
    "linear",
    "mlp",
    "gelu-mlp",
    "unit-mlp",
    "first-unit",
    "norm-linear",
    "residual",
)


def module(kind: str) -> JointHead:
    torch.manual_seed(3)
    made: dict[str, JointHead] = {
        "identity": Identity(D),
        "linear": Linear(D, 6),
        "mlp": MLP(D, 16, 6),
        "gelu-mlp": GELUMLP(D, 16, 6),
        "unit-mlp": UnitMLP(D, 16, 6, gelu=False),
        "first-unit": UnitMLP(D, 16, 6, gelu=True, d_first=10),
        "norm-linear": NormLinear(D, 6),
        "residual": ResidualMLP(D, 6),
    }
    found = made[kind].requires_grad_(False)
    for name, parameter in found.named_parameters():
        if "layer_norm" in name:
            parameter.normal_(1.0, 0.3)
    return found
