"""The fixed matrices that turn captured vectors into all else: no model is loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from residual_audio.capture.recorder import Arrays
from residual_audio.models.encoder import Encoder
from residual_audio.models.joint import JointHead


def encoder_operators(encoder: Encoder, kinds: tuple[str, ...]) -> Arrays:
    """`w_out/<site>` [head, d_head, width], `b_out/<site>` [width]; with `direct`, its steps."""
    found: dict[str, Tensor] = {}
    for site in encoder.sites:
        if site.kind == "attention":
            weight, bias = encoder.output_projection(site)
            found[f"w_out/{site}"] = weight.unflatten(0, (site.n_heads, site.d_head))
            found[f"b_out/{site}"] = bias
    if "direct" in kinds:
        fixed = encoder.direct_path().steps
        for stage, step in enumerate(fixed.steps):
            found[f"direct/step/s{stage}"] = step
            entry = fixed.entry[stage]
            if entry is not None:
                found[f"direct/entry/s{stage}"] = entry
        found["direct/final"] = fixed.final
    return {name: _array(value) for name, value in found.items()}


def window_grids(encoder: Encoder, shapes: Mapping[str, tuple[int, int, int]]) -> Arrays:
    """`grid/window/s0` [token, 2]: time and frequency step of the rows and columns of a map."""
    found = {}
    for site in encoder.sites:
        if str(site) in shapes:
            grid = encoder.window_grid(site.stage, shapes[str(site)][-1])
            found[f"grid/window/s{site.stage}"] = _array(grid)
    return found


def joint_operators(head: JointHead) -> tuple[Arrays, dict[str, Any] | None]:
    """Parameters of a joint head that reads the latent, and its description; none for others."""
    if not head.reads_latent:
        return {}, None
    arrays = {f"joint/{name}": _array(value) for name, value in head.state_dict().items()}
    eps = {f"joint/{n}": m.eps for n, m in head.named_modules() if isinstance(m, nn.LayerNorm)}
    return arrays, {"kind": head.kind, "config": dict(head.config), "norm_eps": eps}


def _array(value: Tensor) -> np.ndarray:
    return torch.clone(value.detach(), memory_format=torch.contiguous_format).cpu().numpy()
