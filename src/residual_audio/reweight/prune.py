"""A smaller encoder: heads taken out of the weights, so that they cost nothing any more."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch

from residual_audio.errors import InputError
from residual_audio.models.encoder import Encoder
from residual_audio.types import Head, Site


@torch.no_grad()
def prune_heads(
    encoder: Encoder,
    removed: Sequence[str | Head],
    means: Mapping[Site, torch.Tensor] | None = None,
) -> Encoder:
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
        weight, bias = encoder.output_projection(site)
        if means is not None:
            rows = weight.unflatten(0, (site.n_heads, site.d_head))[out]
            bias = bias + torch.einsum("hd,hdw->w", means[site][out], rows)
        small.block(site).keep_heads(keep, bias)
    if gone:
        raise InputError(f"this encoder has no head '{min(gone)}'")
    return small
