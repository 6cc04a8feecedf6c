"""Figures over blocks and stages: block heat map, progression, box plots, sample size, scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.analysis.aggregate import groups_of
from residual_audio.analysis.columns import label
from residual_audio.metrics.estimators import DIMENSIONS
from residual_audio.metrics.statistics import by_group
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import (
    COLUMN,
    HEAT,
    MARKERS,
    PAGE,
    panels,
    series_colour,
    stage_colour,
    stage_legend,
)
from residual_audio.report.typesetting import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def block_heatmap(tables: Tables) -> Figure:
    """L, N, L/N and EVR1 of every block, deepest on top, with its numbers."""
    import matplotlib.pyplot as plt

    blocks = tables.need("blocks", "L", "N", "L/N", "EVR1")
    names = ("L", "N", "L/N", "EVR1")
    n = len(blocks)
    figure, axes = plt.subplots(figsize=(COLUMN, 0.22 * n + 0.75))
    values = np.stack([blocks[name].astype(float) for name in names], axis=1)
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    axes.imshow(scaled, cmap=HEAT, aspect="auto", origin="lower", vmin=0, vmax=1)
    for i in range(n):
        for j in range(len(names)):
            shade = "black" if scaled[i, j] > 0.6 else "white"
            axes.text(j, i, number(values[i, j], 2, "even"), ha="center", va="center", color=shade)
    stages = blocks["stage"]
    for edge in np.flatnonzero(np.diff(stages)):
        axes.axhline(edge + 0.5, color="black", linewidth=1.4)
        axes.axhline(edge + 0.5, color="white", linewidth=0.7, linestyle=(0, (4, 3)))
    ticks = [f"s{s}.b{b}" for s, b in zip(stages, blocks["block"], strict=True)]
    axes.set_yticks(range(n), ticks)
    axes.set_xticks(range(4), ["L\n(PCA 99%)", "N\n(TwoNN)", "L/N", "EVR1"])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def progression(tables: Tables) -> Figure:
    """Mean ± standard deviation over the heads of every block."""
    import matplotlib.pyplot as plt

    blocks = tables["blocks"]
    shown = [e for e in DIMENSIONS if f"{e.name}_mean" in blocks]
    left = [e.name for e in shown if e.needs == "spectrum"]
    right = [e.name for e in shown if e.needs == "neighbours"]
    if not left and not right:
        raise MissingTable("the block table has no dimensions")
    figure, grid = plt.subplots(1, 2, figsize=(PAGE, 2.4))
    for axes, names, title in zip(grid, (left, right), ("linear", "nonlinear"), strict=True):
        for i, name in enumerate(names):
            axes.errorbar(
                blocks["block_index"],
                blocks[f"{name}_mean"],
                yerr=blocks[f"{name}_std"],
                color=series_colour(i),
                marker=MARKERS[i % len(MARKERS)],
                capsize=1.5,
                elinewidth=0.6,
                label=label(name),
            )
        stage_marks(axes, blocks["stage"])
        axes.set_title(f"{title} dimension", loc="left", pad=12)
        axes.set_xlabel("block")
        axes.set_xticks(blocks["block_index"])
        axes.set_ylim(0, 1.25 * axes.get_ylim()[1])  # room for names above the lines
        axes.legend(loc="upper left", ncols=2)
    grid[0].set_ylabel("mean ± std over heads")
    return figure


def stage_marks(axes: Axes, stages: np.ndarray) -> None:
    """Lines where a stage ends, names above."""
    for edge in np.flatnonzero(np.diff(stages)):
        axes.axvline(edge + 0.5, color="0.6", linewidth=0.6, linestyle=":")
    for stage in np.unique(stages):
        place = np.flatnonzero(stages == stage).mean()
        axes.text(
            place,
            1.02,
            f"s{stage}",
            transform=axes.get_xaxis_transform(),
            ha="center",
            fontsize=6.5,
        )


def boxplots(tables: Tables) -> Figure:
    """Dimensions by stage: median, quartiles, whiskers at 1.5 times their distance, outliers.

    By block where the encoder has one stage.
    """
    heads = tables.need("heads", "stage", "block")
    names = [e.name for e in DIMENSIONS if e.name in heads]
    if not names:
        raise MissingTable("the per-head table has no dimensions")
    kind, members = groups_of(heads)
    groups = list(dict.fromkeys(members))
    figure, grid = panels(len(names), height=1.8)
    for axes, name in zip(grid, names, strict=True):
        found = by_group(heads[name].astype(float), members)
        drawn = axes.boxplot(
            list(found.values()), widths=0.6, patch_artist=True,
            flierprops={"marker": ".", "markersize": 3},
        )  # fmt: skip
        for patch, group in zip(drawn["boxes"], groups, strict=True):
            patch.set_facecolor(stage_colour(int(group[1:]) if kind == "stage" else 0))
            patch.set_linewidth(0.6)
        for line in drawn["medians"]:
            line.set_color("black")
        count = "\n({})" if len(groups) <= 6 else ""
        ticks = [f"{group}{count.format(len(found[group]))}" for group in groups]
        axes.set_xticks(range(1, len(groups) + 1), ticks, rotation=90 if len(groups) > 8 else 0)
        axes.set_title(label(name), loc="left")
    return figure


def dimension_against_clips(tables: Tables) -> Figure:
    """Stage means of random subsets of the clips: how far each estimator still moves."""
    curves = tables.need("dimension_vs_n", "n_clips", "stage")
    names = [e.name for e in DIMENSIONS if e.name in curves]
    figure, grid = panels(len(names), height=1.9)
    stages = sorted(set(curves["stage"].tolist()))
    for axes, name in zip(grid, names, strict=True):
        for stage in stages:
            part = curves.where(curves["stage"] == stage)
            axes.errorbar(
                part["n_clips"],
                part[name],
                yerr=np.nan_to_num(part[f"{name}_std"].astype(float)),
                color=stage_colour(stage),
                marker="o",
                elinewidth=0.6,
                capsize=1.5,
            )
        axes.set_xscale("log")
        sizes = sorted(set(curves["n_clips"].tolist()))
        axes.set_xticks(sizes, [f"{s:,}" for s in sizes], rotation=60)
        axes.minorticks_off()
        axes.set_title(label(name), loc="left")
        axes.set_xlabel("clips")
        axes.set_ylim(bottom=0)
    stage_legend(figure, stages, below=True)
    return figure


def dimension_against_scale(tables: Tables) -> Figure:
    """GRIDE: dimension as seen from neighbour n to 2n, mean of each stage."""
    import matplotlib.pyplot as plt

    heads = tables["heads"]
    orders = [o for o in (1, 2, 4, 8, 16, 32) if f"gride_{o}" in heads]
    orders = [o for o in orders if np.isfinite(heads[f"gride_{o}"].astype(float)).any()]
    if len(orders) < 2:
        raise MissingTable("the per-head table has no GRIDE columns with numbers")
    figure, axes = plt.subplots(figsize=(COLUMN, 2.3))
    stages = sorted(set(heads["stage"].tolist()))
    for stage in stages:
        part = heads.where(heads["stage"] == stage)
        columns = {o: part[f"gride_{o}"].astype(float) for o in orders}
        known = {o: c[np.isfinite(c)] for o, c in columns.items() if np.isfinite(c).any()}
        axes.errorbar(
            list(known),
            [c.mean() for c in known.values()],
            yerr=[c.std() for c in known.values()],
            color=stage_colour(stage),
            marker="o",
            capsize=1.5,
            elinewidth=0.6,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(orders, [f"{o}→{2 * o}" for o in orders])
    axes.set_xlabel("neighbours compared (small → large scale)")
    axes.set_ylabel("GRIDE dimension, mean ± std")
    axes.set_ylim(bottom=0)
    stage_legend(axes, stages, loc="best")
    return figure
