"""The joint head as a torch module, from a store; and back."""

from __future__ import annotations

import numpy as np
import torch

from residual_audio.capture.operators import joint_operators
from residual_audio.direct.joint_arrays import Joint, JointSource
from residual_audio.errors import ModelError, StoreError
from residual_audio.models.joint import HEADS, JointHead


def joint_head(source: JointSource) -> JointHead:
    """The model's joint head as a torch module, differentiable in the latent."""
    about = source.joint
    if about is None or about["kind"] not in HEADS:
        raise StoreError(
            "this model's joint embedding is not a function of the pooled latent: its direct path "
            "ends before it, so direct ablation and direct gains are not defined"
        )
    head = HEADS[about["kind"]](**about["config"])
    state = {
        name: torch.from_numpy(np.array(source.operator(f"joint/{name}")))
        for name in head.state_dict()
    }
    head.load_state_dict(state)
    for name, module in head.named_modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = about["norm_eps"][f"joint/{name}"]
    return head.eval().requires_grad_(False)


def joint_of_module(head: JointHead) -> Joint:
    """The same head in numpy."""
    arrays, about = joint_operators(head)
    if about is None:
        raise ModelError(f"the '{head.kind}' head does not read the pooled latent")
    eps = {name.removeprefix("joint/"): value for name, value in about["norm_eps"].items()}
    return Joint(head.kind, lambda name: arrays[f"joint/{name}"], eps, head.config)
