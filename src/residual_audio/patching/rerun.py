"""Exact: the network runs on from the corrupt clip's states with values of the clean clip."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from residual_audio.models.precision import products_in
from residual_audio.passes.fan_out import Swap, fan_out, plan_blocks
from residual_audio.patching.exchanges import Exchanges
from residual_audio.patching.held import HeldPass, MeasuredExchanges, TokenMasks, measured
from residual_audio.patching.targets import Target

AT_ONCE = 32
"""Targets that run together."""


@torch.no_grad()
def run_exact(
    given: Exchanges, numbers: Sequence[int], rows: Sequence[int], targets: Sequence[Target]
) -> MeasuredExchanges:
    with products_in("float32", torch.device("cpu")):  # weights are laid out once for all passes
        return _rerun(given, numbers, rows, targets)


def _rerun(
    given: Exchanges, numbers: Sequence[int], rows: Sequence[int], targets: Sequence[Target]
) -> MeasuredExchanges:
    sites = given.model.encoder.sites
    plan = plan_blocks([target.block for target in targets], AT_ONCE)
    keep = HeldPass(sites, {target.block for target in targets})
    joint = given.model.joint(given.model.encode(given.features.take(rows), tap=keep))
    where = {row: i for i, row in enumerate(rows)}
    patched = joint.new_zeros(len(targets), len(numbers))
    for column, number in enumerate(numbers):
        item = given.items[number]
        clean, corrupt = where[item.clean], where[item.corrupt]
        masks = TokenMasks(given, item, keep)
        for block, members in plan:
            if targets[members[0]].unit.kind == "output":
                found = joint[clean][None].expand(len(members), -1)
            else:
                some = [targets[i] for i in members]
                start = keep.start(block, clean, corrupt, some, masks)
                changes = [Swap(target.unit, masks.of(target)) for target in some]
                edit = fan_out(changes, sites, lambda site, point: keep.values[site, point][clean])  # noqa: B023
                found = given.model.joint(given.model.encode(None, edit=edit, start=start))
            patched[members, column] = item.measure(found, joint[clean])
    return measured(given, numbers, where, joint, patched)
