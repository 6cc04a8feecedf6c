"""Figures with one mark a head: panels A–H, PC1 dominance, entropy against dimension."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np

from residual_audio.analysis.columns import label
from residual_audio.metrics.estimators import SUMMARY
from residual_audio.metrics.statistics import correlate
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import COLUMN, PAGE, panels, stage_colour, stage_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from residual_audio.table import Table


def head_panels(tables: Tables, prefix: str = "") -> Figure:
    """The estimates of every head, in order of computation, coloured by stage."""
    heads = tables.need("heads", "stage", "block_index")
    shown = [e.name for e in SUMMARY if e.panel and prefix + e.name in heads]
    if not shown:
        raise MissingTable(f"the per-head table has no '{prefix}' metrics")
    figure, grid = panels(len(shown))
    for letter, name, axes in zip(ascii_uppercase, shown, grid, strict=False):
        head_scatter(axes, heads, prefix + name)
        axes.set_title(f"{letter}  {label(name)}", loc="left")
        if name == "ln_ratio":
            axes.axhline(1, color="0.4", linewidth=0.6, linestyle="--", zorder=1)
    order, stages = "head, in order of computation", sorted(set(heads["stage"].tolist()))
    if len(stages) > 1:  # a label of the figure would lie under the legend
        stage_legend(figure, stages, below=True, title=order)
    else:
        figure.supxlabel(order, fontsize=7.5)
    return figure


def projected_panels(tables: Tables) -> Figure:
    """The same estimates after W_O."""
    return head_panels(tables, "projected_")


def head_scatter(axes: Axes, heads: Table, column: str) -> None:
    """One dot a head, the mean of each stage as a line, blocks told apart by grey bands."""
    x = np.arange(len(heads))
    values = heads[column].astype(float)
    stages, blocks = heads["stage"], heads["block_index"]
    block_bands(axes, blocks)
    for stage in np.unique(stages):
        chosen = stages == stage
        axes.scatter(
            x[chosen], values[chosen], s=5, color=stage_colour(stage), linewidths=0, zorder=3
        )
        if np.isfinite(values[chosen]).any():
            mean = np.nanmean(values[chosen])
            ends = [x[chosen].min(), x[chosen].max()]
            axes.plot(ends, [mean, mean], color="black", linewidth=0.9, zorder=4)
    axes.set_xlim(-1.5, len(heads) + 0.5)
    axes.margins(y=0.08)


def block_bands(axes: Axes, blocks: np.ndarray) -> None:
    """Every other block on grey."""
    for block in np.unique(blocks):
        inside = np.flatnonzero(blocks == block)
        if block % 2:
            axes.axvspan(
                inside.min() - 0.5, inside.max() + 0.5, color="0.93", zorder=0, linewidth=0
            )


def pc1_dominance(tables: Tables) -> Figure:
    """Share of the first component of every head; half of the variance is marked."""
    import matplotlib.pyplot as plt

    heads = tables.need("heads", "evr_pc1")
    figure, axes = plt.subplots(figsize=(PAGE, 1.9))
    values, stages = heads["evr_pc1"].astype(float), heads["stage"]
    colours = [stage_colour(s) for s in stages]
    axes.bar(np.arange(len(heads)), values, width=0.9, color=colours)
    axes.axhline(0.5, color="black", linewidth=0.7, linestyle="--")
    axes.set_xlim(-1, len(heads))
    axes.set_ylim(0, 1)
    axes.set_xlabel("head, in order of computation")
    axes.set_ylabel("share of PC1")
    for stage in np.unique(stages):
        chosen = stages == stage
        above = int((values[chosen] > 0.5).sum())
        place = np.flatnonzero(chosen).mean()
        text = f"Stage {stage}\n{above} of {int(chosen.sum())}"
        axes.text(place, 1.02, text, ha="center", va="bottom", fontsize=6.5)
    axes.set_title("heads above one half:", loc="left", pad=20, fontsize=6.5)
    return figure


def entropy_against_dimension(tables: Tables) -> Figure:
    """Spectral entropy against PCA 99%, with the rank correlation."""
    import matplotlib.pyplot as plt

    heads = tables.need("heads", "shannon_entropy", "pca_99")
    figure, axes = plt.subplots(figsize=(COLUMN, 2.6))
    x, y, stages = (
        heads["pca_99"].astype(float),
        heads["shannon_entropy"].astype(float),
        heads["stage"],
    )
    spread = np.random.default_rng(0).uniform(-0.2, 0.2, len(x))  # PCA dimensions are whole numbers
    for stage in np.unique(stages):
        chosen = stages == stage
        axes.scatter(
            (x + spread)[chosen],
            y[chosen],
            s=10,
            color=stage_colour(stage),
            alpha=0.8,
            linewidths=0,
        )
    found = correlate(x, y)
    p = "p < 10⁻⁵⁰" if found.spearman_p < 1e-50 else f"p = {found.spearman_p:.2g}"
    axes.set_title(f"Spearman ρ = {found.spearman:.3f}, {p}, n = {found.n}", loc="left")
    axes.set_xlabel("PCA 99% dimension")
    axes.set_ylabel("spectral entropy (nats)")
    stage_legend(axes, sorted(set(stages.tolist())), loc="lower right")
    return figure
