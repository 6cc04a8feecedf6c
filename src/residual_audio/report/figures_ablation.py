"""Figures of ablation: what each part is worth, what predicts it, curves of removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.ablation.block_correlations import over_blocks
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import (
    COLUMN,
    CONTROL,
    PAGE,
    series_colour,
    stage_colour,
    stage_legend,
)
from residual_audio.table import Table
from residual_audio.types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def _best(tables: Tables, level: str) -> tuple[Table, str]:
    """The most faithful ablation that the run has."""
    for method in ("exact", "first-order", "direct"):
        try:
            return tables.need(f"ablation_{level}_{method}", "d_margin"), method
        except MissingTable:
            continue
    raise MissingTable(f"no ablation of level '{level}' in this run")


def fisher_against_ablation(tables: Tables) -> Figure:
    """Does a head that separates the classes matter more? One point a head."""
    import matplotlib.pyplot as plt
    from scipy.stats import spearmanr

    effects, method = _best(tables, "head")
    metrics = tables.need("ablation_metrics", "unit")
    shown = [
        c for c in ("fisher", "shannon_entropy", "direct_spread", "text_alignment") if c in metrics
    ]
    if not shown:
        raise MissingTable("no metric to compare the ablation with")
    figure, axes = plt.subplots(1, len(shown), figsize=(PAGE, 1.9), sharey=True, squeeze=False)
    importance = -effects["d_margin"].astype(float)
    colours = [stage_colour(s) for s in effects["stage"]]
    for ax, name in zip(axes[0], shown, strict=True):
        x = metrics[name].astype(float)
        ax.scatter(x, importance, s=6, c=colours, linewidths=0)
        known = np.isfinite(x) & np.isfinite(importance)
        rho = spearmanr(x[known], importance[known]).statistic if known.sum() > 2 else np.nan
        ax.set_title(f"ρ = {rho:.2f}")
        ax.set_xlabel(name.replace("_", " "))
        ax.axhline(0, color="black", linewidth=0.4)
    axes[0, 0].set_ylabel(f"margin lost ({method})")
    stage_legend(axes[0, -1], sorted(set(effects["stage"].astype(int).tolist())), loc="best")
    return figure


def block_ablation(tables: Tables) -> Figure:
    """Bars by block with intervals, entropy against importance, and heads by stage."""
    import matplotlib.pyplot as plt

    blocks, method = _best(tables, "attention")
    measure = "d_correct" if "d_correct" in blocks else "d_margin"
    figure, (bars, scatter, spread) = plt.subplots(1, 3, figsize=(PAGE, 2.1))
    drop = -blocks[measure].astype(float)
    low, high = -blocks[f"{measure}_high"].astype(float), -blocks[f"{measure}_low"].astype(float)
    index = blocks["block_index"].astype(int)
    colours = [stage_colour(s) for s in blocks["stage"]]
    error = np.maximum(np.stack([drop - low, high - drop]), 0)
    bars.bar(index, drop, color=colours, yerr=error, error_kw={"linewidth": 0.6})
    bars.axhline(0, color="black", linewidth=0.4)
    bars.set_xticks(index)
    bars.tick_params(axis="x", labelsize=6)
    bars.set_xlabel("block")
    what = "accuracy" if measure == "d_correct" else "margin"
    bars.set_ylabel(f"{what} lost ({method})")
    heads, head_method = _best(tables, "head")
    lost = -heads["d_margin"].astype(float)
    try:
        entropy = tables.need("ablation_metrics", "shannon_entropy")["shannon_entropy"].astype(
            float
        )
        by_block = heads["block_index"].astype(int)
        mean = np.array([np.nanmean(entropy[by_block == b]) for b in index])
        scatter.scatter(mean, drop, c=colours, s=12)
        for x, y, b in zip(mean, drop, index, strict=True):
            scatter.annotate(str(b), (x, y), fontsize=5, xytext=(2, 2), textcoords="offset points")
        found = over_blocks(mean, drop)
        scatter.set_title(f"r = {found.value:.2f}, p = {found.p:.2g} ({found.n} blocks)")
    except MissingTable:
        scatter.text(0.5, 0.5, "no head entropies", ha="center", transform=scatter.transAxes)
    scatter.set_xlabel("mean spectral entropy of heads")
    scatter.set_ylabel(f"{what} lost")
    _spread_of_heads(spread, heads, lost)
    spread.set_ylabel(f"margin lost, heads ({head_method})")
    return figure


def _spread_of_heads(axes: Axes, heads: Table, lost: FloatArray) -> None:
    """Heads by stage; by block where an encoder has but one stage."""
    stages = heads["stage"].astype(int)
    by_block = len(set(stages.tolist())) == 1
    place = heads["block_index"].astype(int) if by_block else stages
    groups = sorted(set(place.tolist()))
    boxes = axes.boxplot(
        [lost[place == g] for g in groups], patch_artist=True, widths=0.6, showfliers=True,
        flierprops={"markersize": 2}, medianprops={"color": "black"},
    )  # fmt: skip
    for patch, group in zip(boxes["boxes"], groups, strict=True):
        patch.set_facecolor(stage_colour(stages[place == group][0]))
    axes.set_xticks(range(1, len(groups) + 1), [f"{'' if by_block else 's'}{g}" for g in groups])
    axes.set_xlabel("block" if by_block else "stage")
    axes.tick_params(axis="x", labelsize=6 if by_block else None)
    axes.axhline(0, color="black", linewidth=0.4)


def ablation_predictors(tables: Tables) -> Figure:
    """Spearman's ρ of each cheap metric with the importance of heads."""
    import matplotlib.pyplot as plt

    table = tables.need("ablation_correlations", "importance", "metric", "spearman")
    target = next(
        (
            t
            for t in ("exact margin", "first-order margin", "direct margin")
            if t in table["importance"]
        ),
        None,
    )
    if target is None:
        raise MissingTable("no importance by margin in this run")
    part = table.where(table["importance"] == target)
    order = np.argsort(np.abs(part["spearman"].astype(float)))
    figure, axes = plt.subplots(figsize=(COLUMN, 0.16 * len(order) + 0.6))
    axes.barh(range(len(order)), part["spearman"].astype(float)[order], color=series_colour(0))
    axes.set_yticks(range(len(order)), [str(part["metric"][i]).replace("_", " ") for i in order])
    axes.axvline(0, color="black", linewidth=0.4)
    axes.set_xlabel(f"Spearman's ρ with importance ({target})")
    return figure


def removal_curves(tables: Tables) -> Figure:
    """Accuracy against heads removed, least important first, by every order."""
    import matplotlib.pyplot as plt

    for method in ("exact", "direct"):
        try:
            table = tables.need(f"ablation_curve_{method}", "order", "removed", "correct")
            break
        except MissingTable:
            continue
    else:
        raise MissingTable("no curve of removal in this run")
    figure, axes = plt.subplots(figsize=(COLUMN, 2.4))
    for i, name in enumerate(dict.fromkeys(table["order"].tolist())):
        part = table.where(table["order"] == name)
        x, y = part["removed"].astype(float), part["correct"].astype(float)
        colour = CONTROL if name == "random" else series_colour(i)
        style = ":" if name == "random" else "-"
        axes.plot(x, y, style, color=colour, label=str(name).replace("_", " "), marker=".")
        if name == "greedy":
            low, high = part["correct_low"].astype(float), part["correct_high"].astype(float)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(f"heads removed ({method})")
    axes.set_ylabel("top-1")
    axes.legend()
    return figure
