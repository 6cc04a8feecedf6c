"""Several units at once: greedy orders of removal, curves along an order, interactions of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch

from residual_audio.ablation.direct import FromLatent, change_of
from residual_audio.ablation.effects import Effects
from residual_audio.ablation.exact import Means, remove
from residual_audio.ablation.first_order import first_order_ablation
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.metrics.bootstrap import bootstrap_mean
from residual_audio.passes.kept import Audio, Batches
from residual_audio.types import FloatArray, Unit, unite

Removal = Literal["zero", "mean"]


def greedy_order(
    model: Audio,
    batches: Callable[[], Batches],
    judge: Judge,
    units: Sequence[Unit],
    *,
    mode: Removal = "zero",
    means: Means | None = None,
    step: int = 8,
    progress: Callable[[int], None] | None = None,
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
            model,
            batches(),
            judge,
            [units[i] for i in left],
            mode=mode,
            means=means,
            removed=gone,
        )
        cheapest = np.argsort(found.importance("margin"), kind="stable")[:step]
        order += [left[i] for i in cheapest]
        left = [i for i in left if i not in set(order)]
        if progress is not None:
            progress(len(cheapest))
    return order


def greedy_order_direct(
    contributions: Contributions,
    from_latent: FromLatent,
    judge: Judge,
    units: Sequence[Unit],
    *,
    mode: Removal = "mean",
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
        cost = np.einsum("cud,cd->u", parts[:, left], slope.numpy())
        chosen = left[np.argsort(cost, kind="stable")[:step]]
        order += chosen.tolist()
        latent = latent - torch.from_numpy(parts[:, chosen].sum(1))
        left = left[~np.isin(left, chosen)]
    return order


@torch.no_grad()
def removal_curve(
    model: Audio,
    batches: Callable[[], Batches],
    judge: Judge,
    units: Sequence[Unit],
    order: Sequence[int],
    counts: Sequence[int],
    *,
    mode: Removal = "zero",
    means: Means | None = None,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measures with the first k units of `order` out of the network, for each k of `counts`."""
    rows = []
    for k in counts:
        if not 0 <= k <= len(order):
            raise InputError(f"cannot remove {k} of {len(order)} units")
        gone = unite([units[i] for i in order[:k]])
        edit = remove(gone, model.encoder.sites, mode, means) if k else None
        values: dict[str, FloatArray] = {m: np.full(len(judge), np.nan) for m in MEASURES}
        for clips, features in batches():
            base = model.joint(model.encoder.encode(features))
            joint = model.joint(model.encoder.encode(features, edit=edit)) if k else base
            for name, value in judge.measure(joint, clips, base).items():
                values[name][clips.numpy()] = value.cpu().numpy()
        rows.append({"removed": k, "kept": len(order) - k} | _intervals(values, groups, seed))
    return rows


@torch.no_grad()
def removal_curve_direct(
    contributions: Contributions,
    from_latent: FromLatent,
    judge: Judge,
    units: Sequence[Unit],
    order: Sequence[int],
    counts: Sequence[int],
    *,
    mode: Removal = "mean",
    groups: Sequence[Any] | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Measures with the direct contributions of the first k units taken out, for each k."""
    latent = contributions.latent.astype(np.float64)
    clips = torch.arange(len(latent))
    base = from_latent(torch.from_numpy(contributions.latent))
    rows = []
    done = 0
    for k in sorted(counts):
        for i in order[done:k]:
            latent -= change_of(contributions.of(units[i]), mode)
        done = k
        joint = from_latent(torch.from_numpy(latent.astype(np.float32)))
        values = {m: v.numpy() for m, v in judge.measure(joint, clips, base).items()}
        rows.append({"removed": k, "kept": len(order) - k} | _intervals(values, groups, seed))
    return rows


def _intervals(
    values: dict[str, FloatArray], groups: Sequence[Any] | None, seed: int
) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, value in values.items():
        known = ~np.isnan(value)
        kept = None if groups is None else [g for g, k in zip(groups, known, strict=True) if k]
        low, high = bootstrap_mean(value[known], rng=np.random.default_rng(seed), groups=kept)
        row[name] = float(value[known].mean())
        row[f"{name}_low"], row[f"{name}_high"] = float(low), float(high)
    return row


def pairs_of(units: Sequence[Unit]) -> list[Unit]:
    """Every two of these units together."""
    return [a | b for a, b in combinations(units, 2)]


def interactions(single: Effects, pairs: Effects, measure: str = "margin") -> list[dict[str, Any]]:
    """For each pair, importance together less the sum of its parts.

    Positive: each covers for the other, so they must not go together. Negative: they overlap in
    what they do harm or good to, and the second costs less once the first is gone.
    """
    alone = dict(zip(single.units, single.importance(measure), strict=True))
    rows = []
    for name, together in zip(pairs.units, pairs.importance(measure), strict=True):
        a, b = name.split("+")
        rows.append(
            {
                "a": a,
                "b": b,
                "together": float(together),
                "sum": float(alone[a] + alone[b]),
                "interaction": float(together - alone[a] - alone[b]),
            }
        )
    return sorted(rows, key=lambda row: -abs(row["interaction"]))
