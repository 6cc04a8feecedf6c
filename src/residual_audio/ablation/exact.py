"""Exact ablation: run the network again without the unit, but only what comes after it.

The stream entering every block is kept from one ordinary pass. A unit of block b then costs the
blocks from b on, and the units of a block share all that comes before their removal: one clip
enters the block, the edit fans it out into one copy a unit, and the copies go on as a batch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from residual_audio.ablation.effects import About, Effects, Measured
from residual_audio.ablation.removal import ZERO, Replacement, Values, removal
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.models.encoder import State
from residual_audio.passes.kept import Audio, Batches
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Site, Unit, UnitLike, parse_units


class _Keep:
    """A tap that keeps the streams entering blocks and, if asked, what each site gave."""

    def __init__(self, sites: Sequence[Site], blocks: set[int], values: bool) -> None:
        self.points = frozenset({"stream", "raw", "out"} if values else {"stream"})
        attention = [site for site in sites if site.kind == "attention"]
        self._index = {site: i for i, site in enumerate(attention)}
        self._blocks = blocks
        self.streams: dict[int, Tensor] = {}
        self.values: dict[tuple[Site, str], Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site):
            return
        if point == "stream":
            if self._index[where] in self._blocks:
                self.streams[self._index[where]] = value
        else:
            self.values[where, point] = value


@torch.no_grad()
def exact_ablation(
    model: Audio,
    batches: Batches,
    judge: Judge,
    units: Sequence[UnitLike],
    instead: Replacement = ZERO,
    *,
    units_per_batch: int = 32,
    progress: Progress = SILENT,
) -> Effects:
    """Measures of every clip without each unit.

    `resample` takes the value of the previous clip of the batch: give batches in a shuffled order,
    so that the neighbour is any clip and not one of the same class.
    """
    sites = model.encoder.sites
    found = parse_units(units, sites)
    plan = plan_units(found, units_per_batch)
    measured = Measured.empty(MEASURES, len(found), len(judge))
    start = time.perf_counter()
    last: Values = {}
    for clips, features in batches:
        keep = _Keep(sites, {block for block, _ in plan}, values=instead.mode == "resample")
        base = model.joint(model.encoder.encode(features, tap=keep))
        measured.put_before(clips, judge.measure(base, clips, base))
        donors = _previous(keep.values, last)
        last = {key: value[-1:] for key, value in keep.values.items()}
        for block, members in plan:
            group = [found[i] for i in members]
            for row, clip in enumerate(clips):
                donor = {k: v[row] for k, v in donors.items()} if donors else None
                edit = removal(group, sites, instead, donor)
                state = State(block, keep.streams[block][row : row + 1])
                joint = model.joint(model.encoder.encode(None, edit=edit, start=state))
                values = judge.measure(joint[:, None], clip[None], base[row : row + 1])
                measured.put_after(members, clip[None], values)
        progress.advance(len(clips))
    about = About("exact", instead.mode, time.perf_counter() - start)
    return measured.effects([unit.name for unit in found], about)


def plan_units(units: Sequence[Unit], units_per_batch: int) -> list[tuple[int, list[int]]]:
    """(first block, unit numbers) of each group of units that run together."""
    by_block: dict[int, list[int]] = {}
    for i, unit in enumerate(units):
        by_block.setdefault(unit.block, []).append(i)
    return [
        (block, members[i : i + units_per_batch])
        for block, members in sorted(by_block.items())
        for i in range(0, len(members), units_per_batch)
    ]


def _previous(values: Values, before: Values) -> Values:
    """Each clip's donor values: those of the clip before it, the batch's last for its first."""
    out = {}
    for key, value in values.items():
        if len(value) > 1:
            out[key] = value.roll(1, 0)
        elif key in before:
            out[key] = before[key]
        else:
            raise InputError("mode 'resample' needs at least two clips")
    return out
