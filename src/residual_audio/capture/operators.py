"""The fixed matrices that turn captured vectors into everything else, so that no model is loaded again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residual_audio.capture.direct import direct_path
from residual_audio.capture.recorder import Arrays
from residual_audio.models.encoder import Encoder


def encoder_operators(encoder: Encoder, kinds: tuple[str, ...]) -> Arrays:
    """`w_out/<site>` [head, d_head, width], `b_out/<site>` [width]; with `direct`, its steps."""
    found: dict[str, Tensor] = {}
    for site in encoder.sites:
        if site.kind == "attention":
            weight, bias = encoder.output_projection(site)
            found[f"w_out/{site}"] = weight.unflatten(0, (site.n_heads, site.d_head))
            found[f"b_out/{site}"] = bias
    if "direct" in kinds:
        fixed = direct_path(encoder).steps
        for stage, step in enumerate(fixed.steps):
            found[f"direct/step/s{stage}"] = step
            entry = fixed.entry[stage]
            if entry is not None:
                found[f"direct/entry/s{stage}"] = entry
        found["direct/final"] = fixed.final
    return {name: _array(value) for name, value in found.items()}


def joint_operators(head: nn.Module) -> tuple[Arrays, dict[str, Any] | None]:
    """Parameters of a joint head that reads the latent, and its description; none for others."""
    if not getattr(head, "reads_latent", False):
        return {}, None
    arrays = {f"joint/{name}": _array(value) for name, value in head.state_dict().items()}
    eps = {f"joint/{n}": m.eps for n, m in head.named_modules() if isinstance(m, nn.LayerNorm)}
    return arrays, {"kind": head.kind, "config": dict(head.config), "norm_eps": eps}


def _array(value: Tensor) -> np.ndarray:
    return torch.clone(value.detach(), memory_format=torch.contiguous_format).cpu().numpy()
