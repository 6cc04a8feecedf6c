"""Attribution: one backward pass; the change is about ⟨∂measure/∂value, clean − corrupt⟩, the slope
taken at the corrupt clip."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Edit
from residual_audio.patching.exchanges import Exchanges
from residual_audio.patching.held import (
    HeldPass,
    Key,
    MeasuredExchanges,
    TokenMasks,
    keys_of,
    measured,
    points_of,
)
from residual_audio.patching.targets import Target
from residual_audio.types import Site


def run_attribution(
    given: Exchanges, numbers: Sequence[int], rows: Sequence[int], targets: Sequence[Target]
) -> MeasuredExchanges:
    if any(target.unit.kind == "output" for target in targets):
        raise InputError("the output is all there is after it: exchange it exactly")
    sites = given.model.encoder.sites
    keep = HeldPass(sites, {t.stream for t in targets if t.stream is not None})
    where = {row: i for i, row in enumerate(rows)}
    with torch.enable_grad():
        features = given.features.take(rows)
        leaf = features[0] if isinstance(features, tuple) else features
        leaf = leaf.detach().clone().requires_grad_(True)
        features = (leaf, features[1]) if isinstance(features, tuple) else leaf
        # an edit that changes nothing puts the tapped value on the way to the output
        edit: Edit = {(s, "raw"): lambda x: x.clone() for s in sites if s.kind == "attention"}
        joint = given.model.joint(given.model.encode(features, tap=keep, edit=edit))
        held = joint.detach()
        measures = [
            given.items[n].measure(
                joint[where[given.items[n].corrupt]][None], held[where[given.items[n].clean]]
            )[0]
            for n in numbers
        ]
        points = points_of(targets, sites, keep)
        # clips of a pass do not see each other, and none is the corrupt one twice
        slopes = dict(
            zip(
                points,
                torch.autograd.grad(torch.stack(measures).sum(), list(points.values())),
                strict=True,
            )
        )
    patched = held.new_zeros(len(targets), len(numbers))
    with torch.no_grad():
        for column, number in enumerate(numbers):
            item = given.items[number]
            clean, corrupt = where[item.clean], where[item.corrupt]
            masks = TokenMasks(given, item, keep)
            gains = {
                key: slopes[key][corrupt] * (value[clean] - value[corrupt])
                for key, value in points.items()
            }
            for i, target in enumerate(targets):
                change = _sum_of(target, sites, gains, masks)
                patched[i, column] = measures[column].detach() + change
    return measured(given, numbers, where, held, patched)


def _sum_of(
    target: Target, sites: Sequence[Site], gains: dict[Key, Tensor], masks: TokenMasks
) -> Tensor:
    """⟨slope, clean − corrupt⟩ over the target's tokens."""
    total = torch.zeros((), device=next(iter(gains.values())).device)
    tokens = masks.of(target)
    for key, head in keys_of(target, sites):
        gain = gains[key] if head is None else gains[key][:, head]
        if tokens is not None:
            gain = gain[tokens[key[0].stage]]
        total = total + gain.sum()
    return total
