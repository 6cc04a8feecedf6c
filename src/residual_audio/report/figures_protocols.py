"""Figures of published protocols: accuracy by set of stages, as published and corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.report.run_tables import Tables
from residual_audio.report.style import COLUMN, NEUTRAL, series_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def by_stages(name: str, tables: Tables) -> Figure:
    """One box a set of stages over folds (and what a sweep tried), its points, and the columns that
    it is to be compared with."""
    import matplotlib.pyplot as plt

    cells = tables.need(f"protocol_{name}_folds", "variant", "stages", "accuracy")
    columns = tables.need(f"protocol_{name}", "variant", "key", "accuracy")
    variants = list(dict.fromkeys(str(v) for v in cells["variant"].tolist()))
    figure, axes = plt.subplots(
        1, len(variants), figsize=(COLUMN * len(variants), 2.4), sharey=True, squeeze=False
    )
    for ax, variant in zip(axes[0], variants, strict=True):
        mine = cells.where(cells["variant"] == variant)
        sets = list(dict.fromkeys(str(s) for s in mine["stages"].tolist()))
        values = [mine["accuracy"].astype(float)[mine["stages"] == one] for one in sets]
        ax.boxplot(values, widths=0.6, showfliers=False, medianprops={"color": "black"})
        for i, points in enumerate(values, 1):
            spread = np.linspace(-0.12, 0.12, len(points)) if len(points) > 1 else np.zeros(1)
            ax.scatter(i + spread, points, s=6, color=series_colour(0), zorder=3)
        ax.set_xticks(range(1, len(sets) + 1), sets, fontsize=6)
        for row in columns.where(columns["variant"] == variant).rows():
            if row["key"] in ("baseline", "linear"):
                style = "-" if row["key"] == "baseline" else ":"
                ax.axhline(
                    row["accuracy"], color=NEUTRAL, linewidth=0.8, linestyle=style, label=row["key"]
                )
        ax.set_title(variant)
        ax.set_xlabel("stages with gains")
        ax.legend(fontsize=5.5)
    axes[0, 0].set_ylabel("accuracy of a fold")
    return figure


def paolini(tables: Tables) -> Figure:
    """One λ a stage."""
    return by_stages("paolini", tables)


def arcioni(tables: Tables) -> Figure:
    """One λ a head."""
    return by_stages("arcioni", tables)
