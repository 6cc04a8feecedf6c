"""A smaller encoder: heads taken out of the weights, so that they cost nothing any more."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Encoder
from residual_audio.types import Head, Site, UnitLike, attention_site, parse_units


@torch.no_grad()
def prune_heads(
    encoder: Encoder, removed: Sequence[UnitLike], means: Mapping[Site, Tensor] | None = None
) -> Encoder:
    """A copy of an encoder without these heads; the rest gives the same numbers as zeroing them.

    With `means` (site → [head, d_head]) the mean of a removed head goes into the bias, which is the
    same as replacing the head by its mean. At least one head of a block stays, as a block without
    any has no attention to run.
    """
    small = copy.deepcopy(encoder)
    gone: dict[Site, list[Head]] = {}
    for unit in parse_units(removed, encoder.sites):
        if unit.kind != "head":
            raise InputError(f"'{unit}' is no head: only heads are taken out of the weights")
        (head,) = unit.heads
        gone.setdefault(attention_site(head, encoder.sites), []).append(head)
    for site, heads in gone.items():
        out = [head.head for head in heads]
        if len(out) == site.n_heads:
            raise InputError(f"all heads of {site} would go: leave one, or remove the block")
        weight, bias = encoder.output_projection(site)
        if means is not None:
            rows = weight.unflatten(0, (site.n_heads, site.d_head))[out]
            bias = bias + torch.einsum("hd,hdw->w", means[site][out], rows)
        keep = [h for h in range(site.n_heads) if h not in out]
        small.block(site).keep_heads(keep, bias)
    return small
