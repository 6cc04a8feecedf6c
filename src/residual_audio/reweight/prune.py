"""A smaller encoder: heads taken out of the weights, so that they cost nothing any more."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from residual_audio.errors import InputError
from residual_audio.models.block import Block
from residual_audio.types import Head


@torch.no_grad()
def prune_heads(encoder: Any, removed: Sequence[str | Head], means: Any = None) -> Any:
    """A copy of an encoder without these heads; the rest gives the same numbers as zeroing them.

    With `means` (site → [head, d_head]) the mean of a removed head goes into the bias, which is the
    same as replacing the head by its mean. At least one head of a block stays, as a block without
    any has no attention to run.
    """
    small = copy.deepcopy(encoder)
    gone = {Head.parse(h) if isinstance(h, str) else h for h in removed}
    for site in encoder.sites:
        out = [h.head for h in site.heads if h in gone]
        gone -= set(site.heads)
        if not out:
            continue
        if len(out) == site.n_heads:
            raise InputError(f"all heads of {site} would go: leave one, or remove the block")
        keep = [h for h in range(site.n_heads) if h not in out]
        block: Block = small.stages[site.stage][site.block]
        weight, bias = encoder.output_projection(site)
        if means is not None:
            rows = weight.unflatten(0, (site.n_heads, site.d_head))[out]
            bias = bias + torch.einsum("hd,hdw->w", means[site][out], rows)
        _narrow(block, keep, bias)
    if gone:
        raise InputError(f"this encoder has no head '{min(gone)}'")
    return small


def _narrow(block: Any, keep: list[int], bias: torch.Tensor) -> None:
    n, d, width = block.n_heads, block.d_head, block.qkv.in_features
    qkv = nn.Linear(width, 3 * len(keep) * d)
    qkv.weight.copy_(block.qkv.weight.view(3, n, d, width)[:, keep].reshape(-1, width))
    qkv.bias.copy_(block.qkv.bias.view(3, n, d)[:, keep].reshape(-1))
    proj = nn.Linear(len(keep) * d, block.proj.out_features)
    proj.weight.copy_(block.proj.weight.view(-1, n, d)[:, keep].flatten(1))
    proj.bias.copy_(bias)
    block.qkv, block.proj, block.n_heads = qkv, proj, len(keep)
    if hasattr(block, "bias_table"):
        block.bias_table = nn.Parameter(block.bias_table[:, keep].clone())
        block._bias_cache = None
    block.requires_grad_(False)
