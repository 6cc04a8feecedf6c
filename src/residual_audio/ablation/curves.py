"""Many units at once: orders in which they are best removed, and the answers along an order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residual_audio.ablation.direct_effects import FromLatent, change_of
from residual_audio.ablation.first_order import first_order_ablation
from residual_audio.ablation.removal import ZERO, Mode, Replacement, remove
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.metrics.uncertainty import mean_interval
from residual_audio.passes.kept import Audio, Batches
from residual_audio.progress import SILENT, Progress
from residual_audio.types import FloatArray, Unit, unite


@dataclass(frozen=True)
class RemovalOrder:
    """Units, the order in which they go, and after how many of them to look."""

    units: Sequence[Unit]
    order: Sequence[int]
    counts: Sequence[int]

    def __post_init__(self) -> None:
        for k in self.counts:
            if not 0 <= k <= len(self.order):
                raise InputError(f"cannot remove {k} of {len(self.order)} units")


@dataclass(frozen=True)
class Point:
    """The answers with the first `removed` units gone."""

    removed: int
    kept: int
    values: dict[str, FloatArray]
    """measure → [clip], NaN for clips that were not met"""

    def row(self, groups: Sequence[str] | None = None, seed: int = 0) -> dict[str, float]:
        """Means with their 95% intervals, which draw whole groups."""
        row: dict[str, float] = {"removed": self.removed, "kept": self.kept}
        for name, value in self.values.items():
            known = ~np.isnan(value)
            kept = None if groups is None else [g for g, k in zip(groups, known, strict=True) if k]
            low, high = mean_interval(value[known], seed=seed, groups=kept)
            row[name] = float(value[known].mean())
            row[f"{name}_low"], row[f"{name}_high"] = low, high
        return row


def greedy_order(
    model: Audio,
    batches: Callable[[], Batches],
    judge: Judge,
    units: Sequence[Unit],
    instead: Replacement = ZERO,
    *,
    step: int = 8,
    progress: Progress = SILENT,
) -> list[int]:
    """Units in the order in which they are best removed inside the network.

    Each round one backward pass, with what is already gone left out, says which `step` units cost
    the mean margin least; so the order knows of redundancy, which single ablations do not.
    """
    order: list[int] = []
    left = list(range(len(units)))
    while left:
        gone = unite([units[i] for i in order]) if order else None
        found = first_order_ablation(
            model, batches(), judge, [units[i] for i in left], instead, removed=gone
        )
        cheapest = np.argsort(found.importance("margin"), kind="stable")[:step]
        order += [left[i] for i in cheapest]
        left = [i for i in left if i not in set(order)]
        progress.advance(len(cheapest))
    return order


def greedy_order_direct(
    contributions: Contributions,
    from_latent: FromLatent,
    judge: Judge,
    units: Sequence[Unit],
    *,
    mode: Mode = "mean",
    step: int = 1,
) -> list[int]:
    """The same on the direct path: each round the gradient at the latent scores all units."""
    parts = np.stack([change_of(contributions.of(u), mode) for u in units], 1)  # clip unit latent
    latent = torch.from_numpy(contributions.latent.copy())
    clips = torch.arange(len(latent))
    order: list[int] = []
    left = np.arange(len(units))
    while len(left):
        leaf = latent.clone().requires_grad_(True)
        margin = judge.measure(from_latent(leaf), clips, from_latent(leaf.detach()))["margin"]
        (slope,) = torch.autograd.grad(margin.sum(), leaf)
        # of all units, also of those that are gone: to pick the others out is to copy them
        cost = (parts @ slope.numpy()[..., None])[..., 0].sum(0)[left]
        chosen = left[np.argsort(cost, kind="stable")[:step]]
        order += chosen.tolist()
        latent = latent - torch.from_numpy(parts[:, chosen].sum(1))
        left = left[~np.isin(left, chosen)]
    return order


def removal_curve(
    model: Audio,
    batches: Callable[[], Batches],
    judge: Judge,
    path: RemovalOrder,
    instead: Replacement = ZERO,
) -> list[Point]:
    """Measures with the first k units of the path out of the network, for each k."""
    points = []
    for k in path.counts:
        gone = unite([path.units[i] for i in path.order[:k]])
        edit = remove(gone, model.encoder.sites, instead) if k else None
        values: dict[str, FloatArray] = {m: np.full(len(judge), np.nan) for m in MEASURES}
        for clips, features in batches():
            with torch.no_grad():
                base = model.joint(model.encoder.encode(features))
                joint = model.joint(model.encoder.encode(features, edit=edit)) if k else base
            for name, value in judge.measure(joint, clips, base).items():
                values[name][clips.numpy()] = value.cpu().numpy()
        points.append(Point(k, len(path.order) - k, values))
    return points


def removal_curve_direct(
    contributions: Contributions,
    from_latent: FromLatent,
    judge: Judge,
    path: RemovalOrder,
    *,
    mode: Mode = "mean",
) -> list[Point]:
    """Measures with the direct contributions of the first k units taken out, for each k."""
    clips = torch.arange(contributions.n_clips)
    points = []
    with torch.no_grad():
        base = from_latent(torch.from_numpy(contributions.latent))
        for k, latent in _latents(contributions, path, mode):
            found = judge.measure(from_latent(latent), clips, base)
            values = {name: value.numpy() for name, value in found.items()}
            points.append(Point(k, len(path.order) - k, values))
    return points


def _latents(
    contributions: Contributions, path: RemovalOrder, mode: Mode
) -> Iterator[tuple[int, Tensor]]:
    latent = contributions.latent.astype(np.float64)
    done = 0
    for k in sorted(path.counts):
        for i in path.order[done:k]:
            latent -= change_of(contributions.of(path.units[i]), mode)
        done = k
        yield k, torch.from_numpy(latent.astype(np.float32))
