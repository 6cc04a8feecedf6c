"""Exact ablation: run the network again without the unit, but only what comes after it.

See `passes.fan_out` for how units share what comes before their removal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from residual_audio.ablation.effects import About, Effects, Measured
from residual_audio.ablation.removal import ZERO, Replacement, removal, remove
from residual_audio.engine.cores import on_single_cores
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.models.encoder import Features, States
from residual_audio.models.precision import products_in
from residual_audio.passes.fan_out import Values, plan_blocks
from residual_audio.passes.kept import Audio, Batches
from residual_audio.passes.shares import on_cores
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Site, Unit, UnitLike, attention_site, parse_units


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
    plan = plan_blocks([unit.block for unit in found], units_per_batch)
    measured = Measured.empty(MEASURES, len(found), len(judge))
    start = time.perf_counter()
    last: Values = {}

    def take_out(ground: _Ground, rows: slice, block: int, members: list[int]) -> None:
        clips, gone = ground.clips[rows], [found[i] for i in members]
        if rows.stop - rows.start > 1:
            edit = remove(gone[0], sites, instead)
        else:
            edit = removal(gone, sites, instead, ground.donor(rows.start))
        begin = ground.keep.states[block].take(rows)
        joint = model.joint(model.encoder.encode(None, edit=edit, start=begin))
        joint = joint.view(len(gone), len(clips), -1)
        measured.put_after(members, clips, judge.measure(joint, clips, ground.base[rows]))

    with products_in("float32", torch.device("cpu")):  # weights are laid out once for all passes
        for clips, features in batches:
            grounds = _grounds(model, clips, features, {block for block, _ in plan}, instead)
            for ground in grounds:
                measured.put_before(
                    ground.clips, judge.measure(ground.base, ground.clips, ground.base)
                )
                ground.donors.update(_previous(ground.keep.values, last))
                last = {key: value[-1:] for key, value in ground.keep.values.items()}
            jobs = [
                (ground, rows, block, members)
                for block, members in plan
                for ground in grounds
                for rows in _together(ground, [found[i] for i in members], sites)
            ]
            _each(take_out, jobs, grounds[0].base.device)
            progress.advance(len(clips))
    about = About("exact", instead.mode, time.perf_counter() - start)
    return measured.effects([unit.name for unit in found], about)


@dataclass(frozen=True)
class _Ground:
    """What one ordinary pass over some clips left behind."""

    clips: Tensor
    base: Tensor
    keep: States
    donors: dict[tuple[Site, str], Tensor] = field(default_factory=dict)
    """What takes the place of each clip's own values, where other clips give it."""

    def donor(self, row: int) -> Values | None:
        return {k: v[row] for k, v in self.donors.items()} if self.donors else None


Job = tuple[_Ground, slice, int, list[int]]


def _grounds(
    model: Audio, clips: Tensor, features: Features, blocks: set[int], instead: Replacement
) -> list[_Ground]:
    """Ordinary passes over a batch: a few clips on every core, or, where clips give each other
    their values, all of them in one."""
    resample = instead.mode == "resample"
    found: list[_Ground] = []

    def ordinary(some: Tensor, their_features: Features) -> None:
        keep = States(model.encoder.sites, blocks, values=resample)
        base = model.joint(model.encoder.encode(their_features, tap=keep))
        found.append(_Ground(some, base, keep))

    if resample:
        ordinary(clips, features)
    else:
        on_cores(ordinary, clips, features)
    return found


def _together(ground: _Ground, gone: Sequence[Unit], sites: Sequence[Site]) -> list[slice]:
    """Clips that one pass serves: one with a copy a unit; all, where there is but one unit whose
    sites go as a whole, since products of a few tokens read the weights for little."""
    n = len(ground.clips)
    whole = all(attention_site(head, sites) in gone[0].sites for head in gone[0].heads)
    if len(gone) == 1 and whole and not ground.donors:
        return [slice(0, n)]
    return [slice(row, row + 1) for row in range(n)]


def _each(
    work: Callable[[_Ground, slice, int, list[int]], None],
    jobs: Sequence[Job],
    device: torch.device,
) -> None:
    """On a CPU a core has one at a time to itself: products of a few copies are too small to be
    worth splitting."""
    if device.type != "cpu":
        for job in jobs:
            work(*job)
        return

    def take(numbers: Iterator[int]) -> None:
        for number in numbers:
            work(*jobs[number])

    on_single_cores(take, len(jobs))


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
