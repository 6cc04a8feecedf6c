"""Curves of removal whose orders come from other clips than they are scored on.

An order found on the clips it is scored on picks their noise too: it looks better than it is. Whole
groups are parted into two halves; the order of one half is scored on the other, so that every clip
is scored once, by an order that has not seen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.ablation.curves import (
    Point,
    RemovalOrder,
    greedy_order,
    greedy_order_direct,
    removal_curve,
    removal_curve_direct,
)
from residual_audio.ablation.effects import Effects
from residual_audio.ablation.head_metrics import head_metrics
from residual_audio.ablation.interventions import Interventions, Method
from residual_audio.ablation.removal import Replacement, reference_means
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Unit, units_of

PREDICTORS = ("fisher", "direct_spread", "shannon_entropy", "text_alignment")
"""Metrics of heads that curves of removal are ordered by."""
FOLDED = "each clip is scored by orders found on the other half of the groups"
CIRCULAR = "fewer than four groups: orders were found on the clips they are scored on"


@dataclass(frozen=True)
class Half:
    """Clips that an order is found on, and those it is scored on: places among those of a study."""

    found_on: np.ndarray
    scored_on: np.ndarray


def halves_of(groups: Sequence[str], seed: int = 0) -> tuple[Half, ...]:
    """Two halves that keep groups whole; with fewer than four groups one, which is circular."""
    every = np.arange(len(groups))
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    if len(names) < 4:
        return (Half(every, every),)
    first = np.isin(member, np.random.default_rng(seed).permutation(len(names))[::2])
    a, b = every[first], every[~first]
    return Half(a, b), Half(b, a)


def curve_table(
    given: Interventions,
    effects: Sequence[Effects],
    *,
    exact: bool,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Table:
    """Accuracy against heads removed (least important first), for every way to order them."""
    units = units_of(given.store.sites, "head")
    counts = np.unique(np.linspace(0, len(units), 13).astype(int)).tolist()
    halves = halves_of(given.groups, seed)
    joined: dict[str, list[Point]] = {}
    progress.step("orders of removal", len(halves), "halves")
    orders = []
    for half in halves:
        found = _orders(given, effects, half, exact, seed)
        orders += [(half, name, order) for name, order in found.items()]
        progress.advance()
    progress.step("curves of removal", len(orders), "curves")
    for half, name, order in orders:
        points = _scored(given, RemovalOrder(units, order, counts), half, exact)
        joined[name] = _join(joined.get(name), points)
        progress.advance()
    method: Method = "exact" if exact else "direct"
    rows = [
        {"order": name, "method": method, **point.row(given.groups)}
        for name, points in joined.items()
        for point in points
    ]
    note = FOLDED if len(halves) == 2 else CIRCULAR
    caption = "Heads removed by the mean, least important first"
    return from_rows(f"ablation_curve_{method}", rows, caption, (note,))


def _orders(
    given: Interventions, effects: Sequence[Effects], half: Half, exact: bool, seed: int
) -> dict[str, Sequence[int]]:
    """Least important first, from the clips of this half alone."""
    units = units_of(given.store.sites, "head")
    part = Interventions(
        given.store, given.rows[half.found_on], given.judge.at(half.found_on), given.passes
    )
    metrics = head_metrics(part)
    scores: dict[str, FloatArray] = {
        f"{e.method} margin": -e.delta("margin")[:, half.found_on].mean(1) for e in effects
    }
    scores |= {name: np.nan_to_num(metrics[name]) for name in PREDICTORS if name in metrics}
    orders: dict[str, Sequence[int]] = {
        name: np.argsort(values, kind="stable").tolist() for name, values in scores.items()
    }
    orders["random"] = np.random.default_rng(seed).permutation(len(units)).tolist()
    orders["greedy"] = _greedy(given, part, units, half, exact)
    return orders


def _greedy(
    given: Interventions, part: Interventions, units: Sequence[Unit], half: Half, exact: bool
) -> list[int]:
    if not exact:
        step = max(1, len(units) // 46)
        to_joint = given.head.from_latent
        return greedy_order_direct(part.contributions, to_joint, part.judge, units, step=step)
    passes = given.need_passes()
    means = reference_means(passes.model, passes.batches(half.found_on.tolist()))
    instead = Replacement("mean", means)
    return greedy_order(
        passes.model,
        lambda: passes.batches(half.found_on.tolist()),
        given.judge,
        units,
        instead,
        step=23,
    )


def _scored(given: Interventions, path: RemovalOrder, half: Half, exact: bool) -> list[Point]:
    if exact:
        passes = given.need_passes()
        means = reference_means(passes.model, passes.batches())
        return removal_curve(
            passes.model,
            lambda: passes.batches(half.scored_on.tolist()),
            given.judge,
            path,
            Replacement("mean", means),
        )
    points = removal_curve_direct(given.contributions, given.head.from_latent, given.judge, path)
    return list(_only(points, half.scored_on))


def _only(points: Sequence[Point], clips: np.ndarray) -> Iterator[Point]:
    """NaN for all other clips."""
    for point in points:
        values: dict[str, FloatArray] = {}
        for name, value in point.values.items():
            values[name] = np.full(len(value), np.nan)
            values[name][clips] = value[clips]
        yield Point(point.removed, point.kept, values)


def _join(before: list[Point] | None, points: list[Point]) -> list[Point]:
    """The clips of two halves together."""
    if before is None:
        return points
    return [
        Point(a.removed, a.kept, _either(a.values, b.values))
        for a, b in zip(before, points, strict=True)
    ]


def _either(a: Mapping[str, FloatArray], b: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: np.where(np.isnan(values), b[name], values) for name, values in a.items()}
