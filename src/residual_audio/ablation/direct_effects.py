"""Direct ablation: take a unit's own contribution out of the latent; the encoder does not run.

What later blocks made of the unit stays in: this is the effect of the unit's direct path alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from residual_audio.ablation.effects import About, Effects, Measured
from residual_audio.ablation.removal import Mode
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.types import FloatArray, UnitLike, parse_units

FromLatent = Callable[[Tensor], Tensor]
"""The joint head: [clip, latent] → [clip, joint]."""


@torch.no_grad()
def direct_ablation(
    contributions: Contributions,
    from_latent: FromLatent,
    judge: Judge,
    units: Sequence[UnitLike],
    *,
    mode: Mode = "zero",
    seed: int = 0,
) -> Effects:
    """Measures of every clip without each unit's direct contribution."""
    start = time.perf_counter()
    n = contributions.n_clips
    if len(judge) != n:
        raise InputError(f"answers for {len(judge)} clips, contributions of {n}")
    wanted = parse_units(units, contributions.sites)
    clips = torch.arange(n)
    latent = torch.from_numpy(contributions.latent)
    base = from_latent(latent)
    measured = Measured.empty(MEASURES, len(wanted), n)
    measured.put_before(clips, judge.measure(base, clips, base))
    donors = derangement(n, seed) if mode == "resample" else None
    for i, unit in enumerate(wanted):
        gone = torch.from_numpy(change_of(contributions.of(unit), mode, donors))
        found = judge.measure(from_latent(latent - gone), clips, base)
        measured.put_after([i], clips, found)
    about = About("direct", mode, time.perf_counter() - start)
    return measured.effects([unit.name for unit in wanted], about)


def change_of(
    contribution: FloatArray, mode: Mode, donors: np.ndarray[Any, Any] | None = None
) -> FloatArray:
    """What leaves the latent: the contribution less what takes its place."""
    if mode == "zero":
        return contribution
    if mode == "mean":
        return contribution - contribution.mean(0)
    assert donors is not None
    return contribution - contribution[donors]


def derangement(n: int, seed: int) -> np.ndarray[Any, Any]:
    """A random order in which no clip keeps its place (one cycle through all)."""
    if n < 2:
        raise InputError("mode 'resample' needs at least two clips")
    cycle = np.random.default_rng(seed).permutation(n)
    donors = np.empty(n, np.int64)
    donors[cycle] = np.roll(cycle, 1)
    return donors
