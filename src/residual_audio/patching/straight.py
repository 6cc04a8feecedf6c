"""Straight to the latent: what a target itself adds, and nothing that later blocks make of it.

The corrupt clip's latent + what the target adds in the clean clip − what it adds in the corrupt
one, each with its own norm statistics, so that all parts together give the clean latent.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from residual_audio.direct.token_path import TokenPath
from residual_audio.models.encoder import Encoder
from residual_audio.patching.exchanges import Exchanges
from residual_audio.patching.held import (
    HeldPass,
    MeasuredExchanges,
    TokenMasks,
    keys_of,
    measured,
    points_of,
)
from residual_audio.patching.targets import Target


@torch.no_grad()
def run_direct(
    given: Exchanges, numbers: Sequence[int], rows: Sequence[int], targets: Sequence[Target]
) -> MeasuredExchanges:
    model = given.model
    path = TokenPath(model.encoder)
    keep = HeldPass(model.encoder.sites, {t.stream for t in targets if t.stream is not None}, True)
    encoded = model.encode(given.features.take(rows), tap=keep)
    weights = path.weights(keep.scales)
    joint = model.joint(encoded)
    where = {row: i for i, row in enumerate(rows)}
    patched = joint.new_zeros(len(targets), len(numbers))
    parts = {}
    for column, number in enumerate(numbers):
        item = given.items[number]
        clean, corrupt = where[item.clean], where[item.corrupt]
        masks = TokenMasks(given, item, keep)
        for i, target in enumerate(targets):
            key = (i, masks.duration_s)
            if key not in parts:
                parts[key] = _added(given.model.encoder, path, target, keep, weights, masks)
            part = encoded.latent if target.unit.kind == "output" else parts[key]
            latent = encoded.latent[corrupt] + part[clean] - part[corrupt]
            found = model.head.from_latent(latent[None])
            patched[i, column] = item.measure(found, joint[clean])[0]
    return measured(given, numbers, where, joint, patched)


def _added(
    encoder: Encoder,
    path: TokenPath,
    target: Target,
    keep: HeldPass,
    weights: Sequence[Tensor],
    masks: TokenMasks,
) -> Tensor:
    """[clip, latent] what a target adds to the latent of each clip."""
    tokens = masks.of(target)
    points = points_of([target], encoder.sites, keep)
    total = torch.zeros(())
    for key, head in keys_of(target, encoder.sites):
        site, value = key[0], points[key]
        if head is not None:
            first = head * site.d_head
            rows = encoder.output_projection(site)[0][first : first + site.d_head]
            value = value[:, :, head] @ rows
        mask = None if tokens is None else tokens[site.stage]
        total = total.to(value) + path.added(site.stage, value, weights, mask)
    return total
