"""The ablation of a run as tables: effects by unit and class, what predicts them, curves, pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from residual_audio.ablation.curves import (
    RemovalOrder,
    greedy_order,
    greedy_order_direct,
    removal_curve,
    removal_curve_direct,
)
from residual_audio.ablation.effect_tables import class_table, correlation_table, effects_table
from residual_audio.ablation.effects import Effects
from residual_audio.ablation.head_metrics import head_metrics
from residual_audio.ablation.interventions import Interventions, Method, Way, take_out
from residual_audio.ablation.pairs import interactions, pairs_of
from residual_audio.ablation.removal import Replacement, reference_means
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Site, Unit, parse_unit, units_of

PREDICTORS = ("fisher", "direct_spread", "shannon_entropy", "text_alignment")
"""Metrics of heads that curves of removal are ordered by."""


@dataclass(frozen=True)
class AblationSettings:
    """What `ablate` does."""

    levels: Sequence[str] = ("head", "attention")
    """Levels of units, single units, or sets (`mine=a+b`)."""
    methods: Sequence[Method] = ("direct",)
    way: Way = field(default_factory=Way)
    """Replacement, batch size and seed of every method."""
    curves: bool = True
    pairs: int = 0
    """Interactions of so many of the most important heads."""


DEFAULTS = AblationSettings()


def find_units(sites: Sequence[Site], wanted: Sequence[str]) -> dict[str, tuple[Unit, ...]]:
    """Levels (`head`, `attention` …) and single units or sets, by the name of their table."""
    found: dict[str, tuple[Unit, ...]] = {}
    for name in wanted:
        if name in ("head", "attention", "mlp", "stage"):
            found[name] = units_of(sites, name)
        else:
            found["set"] = (*found.get("set", ()), parse_unit(name, sites))
    return found


def ablate(
    given: Interventions,
    settings: AblationSettings = DEFAULTS,
    progress: Progress = SILENT,
) -> list[Table]:
    """Every table, in the order in which a reader wants them."""
    tables: list[Table] = []
    heads: list[Effects] = []
    seed = settings.way.seed
    for level, units in find_units(given.store.sites, settings.levels).items():
        for method in settings.methods:
            progress.step(f"{len(units)} × {level}, {method}", len(given.rows))
            found = take_out(given, units, replace(settings.way, method=method), progress)
            tables.append(effects_table(given, units, found, level, seed))
            classes = class_table(given, found, level)
            if classes is not None:
                tables.append(classes)
            if level == "head":
                heads.append(found)
    return tables + (_of_heads(given, heads, settings, progress) if heads else [])


def _of_heads(
    given: Interventions, heads: list[Effects], settings: AblationSettings, progress: Progress
) -> list[Table]:
    metrics = head_metrics(given)
    seed = settings.way.seed
    names = np.array([unit.name for unit in units_of(given.store.sites, "head")], object)
    tables = [
        correlation_table(metrics, heads, seed),
        Table("ablation_metrics", {"unit": names, **metrics}),
    ]
    if settings.pairs:
        tables.append(pair_table(given, heads[-1], settings.pairs, settings.way))
    if settings.curves:
        importance = {f"{e.method} margin": e.importance("margin") for e in heads}
        progress.step("curves of removal", 1, "tables")
        exact = "exact" in settings.methods
        tables.append(curve_table(given, metrics, importance, exact=exact, seed=seed))
        progress.advance()
    return tables


def pair_table(given: Interventions, effects: Effects, top: int, way: Way) -> Table:
    """Interactions of the most important heads, by the method of `effects`."""
    order = np.argsort(-effects.importance("margin"), kind="stable")[:top]
    units = [parse_unit(effects.units[i], given.store.sites) for i in order]
    method: Method = effects.method  # type: ignore[assignment]
    pairs = take_out(given, pairs_of(units), replace(way, method=method))
    rows = [asdict(row) for row in interactions(effects, pairs)]
    return from_rows(f"ablation_pairs_{effects.method}", rows)


def curve_table(
    given: Interventions,
    metrics: Mapping[str, FloatArray],
    importance: Mapping[str, FloatArray],
    *,
    exact: bool,
    seed: int = 0,
) -> Table:
    """Accuracy against heads removed (least important first), for every way to order them."""
    units = units_of(given.store.sites, "head")
    counts = np.unique(np.linspace(0, len(units), 13).astype(int)).tolist()
    chosen = {name: np.nan_to_num(metrics[name]) for name in PREDICTORS if name in metrics}
    orders: dict[str, Sequence[int]] = {
        name: np.argsort(values, kind="stable").tolist()
        for name, values in {**importance, **chosen}.items()
    }
    orders["random"] = np.random.default_rng(seed).permutation(len(units)).tolist()
    method: Method = "exact" if exact else "direct"
    rows = []
    if exact:
        passes = given.need_passes()
        means = reference_means(passes.model, passes.batches())
        instead = Replacement("mean", means)
        orders["greedy"] = greedy_order(
            passes.model, passes.batches, given.judge, units, instead, step=23
        )
    else:
        parts, to_joint = given.contributions, given.head.from_latent
        step = max(1, len(units) // 46)
        orders["greedy"] = greedy_order_direct(parts, to_joint, given.judge, units, step=step)
    for name, order in orders.items():
        path = RemovalOrder(units, order, counts)
        points = (
            removal_curve(passes.model, passes.batches, given.judge, path, instead)
            if exact
            else removal_curve_direct(parts, to_joint, given.judge, path)
        )
        rows += [{"order": name, "method": method, **p.row(given.groups)} for p in points]
    name = f"ablation_curve_{method}"
    return from_rows(name, rows, "Heads removed by the mean, least important first")
