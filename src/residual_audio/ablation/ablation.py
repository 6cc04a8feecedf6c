"""The ablation of a run as tables: effects by unit and class, what predicts them, curves, pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from residual_audio.ablation.block_correlations import block_correlation_table
from residual_audio.ablation.effect_tables import class_table, correlation_table, effects_table
from residual_audio.ablation.effects import Effects
from residual_audio.ablation.folded_curves import curve_table
from residual_audio.ablation.head_metrics import head_metrics
from residual_audio.ablation.interventions import Interventions, Method, Way, take_out
from residual_audio.ablation.pairs import interactions, pairs_of
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import Site, Unit, parse_unit, units_of


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
    blocks: list[Effects] = []
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
            elif level == "attention":
                blocks.append(found)
    return tables + (_of_heads(given, heads, blocks, settings, progress) if heads else [])


def _of_heads(
    given: Interventions,
    heads: list[Effects],
    blocks: list[Effects],
    settings: AblationSettings,
    progress: Progress,
) -> list[Table]:
    metrics = head_metrics(given)
    seed = settings.way.seed
    names = np.array([unit.name for unit in units_of(given.store.sites, "head")], object)
    tables = [
        correlation_table(metrics, heads, seed),
        Table("ablation_metrics", {"unit": names, **metrics}),
    ]
    if blocks:
        sites = given.store.attention_sites
        tables.append(block_correlation_table(metrics, sites, blocks, seed))
    if settings.pairs:
        tables.append(pair_table(given, heads[-1], settings.pairs, settings.way))
    if settings.curves:
        exact = "exact" in settings.methods
        tables.append(curve_table(given, heads, exact=exact, seed=seed, progress=progress))
    return tables


def pair_table(given: Interventions, effects: Effects, top: int, way: Way) -> Table:
    """Interactions of the most important heads, by the method of `effects`."""
    order = np.argsort(-effects.importance("margin"), kind="stable")[:top]
    units = [parse_unit(effects.units[i], given.store.sites) for i in order]
    method: Method = effects.method  # type: ignore[assignment]
    pairs = take_out(given, pairs_of(units), replace(way, method=method))
    rows = [asdict(row) for row in interactions(effects, pairs)]
    return from_rows(f"ablation_pairs_{effects.method}", rows)
