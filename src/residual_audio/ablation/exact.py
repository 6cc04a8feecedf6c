"""Exact ablation: run the network again without the unit, but only what comes after it.

See `passes.fan_out` for how units share what comes before their removal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from residual_audio.ablation.effects import About, Effects, Measured
from residual_audio.ablation.removal import ZERO, Replacement, removal
from residual_audio.engine.cores import on_single_cores
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.models.encoder import State, States
from residual_audio.models.precision import products_in
from residual_audio.passes.fan_out import Values, plan_blocks
from residual_audio.passes.kept import Audio, Batches
from residual_audio.progress import SILENT, Progress
from residual_audio.types import UnitLike, parse_units


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
    with products_in("float32", torch.device("cpu")):  # weights are laid out once for all passes
        for clips, features in batches:
            keep = States(sites, {block for block, _ in plan}, values=instead.mode == "resample")
            base = model.joint(model.encoder.encode(features, tap=keep))
            measured.put_before(clips, judge.measure(base, clips, base))
            donors = _previous(keep.values, last)
            last = {key: value[-1:] for key, value in keep.values.items()}
            ground = _Ground(clips, base, keep, donors)

            def take_out(
                row: int, block: int, members: list[int], ground: _Ground = ground
            ) -> None:
                clip = ground.clips[row : row + 1]
                edit = removal([found[i] for i in members], sites, instead, ground.donor(row))
                joint = model.joint(
                    model.encoder.encode(None, edit=edit, start=ground.at(row, block))
                )
                values = judge.measure(joint[:, None], clip, ground.base[row : row + 1])
                measured.put_after(members, clip, values)

            jobs = [(row, *group) for group in plan for row in range(len(clips))]
            _each(take_out, jobs, base.device)
            progress.advance(len(clips))
    about = About("exact", instead.mode, time.perf_counter() - start)
    return measured.effects([unit.name for unit in found], about)


@dataclass(frozen=True)
class _Ground:
    """What one ordinary pass over a batch left behind."""

    clips: Tensor
    base: Tensor
    keep: States
    donors: Values

    def donor(self, row: int) -> Values | None:
        return {k: v[row] for k, v in self.donors.items()} if self.donors else None

    def at(self, row: int, block: int) -> State:
        return self.keep.states[block].take(slice(row, row + 1))


def _each(
    work: Callable[[int, int, list[int]], None],
    jobs: Sequence[tuple[int, int, list[int]]],
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
