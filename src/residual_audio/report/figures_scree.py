"""Scree plots: how fast the eigenvalues of heads fall, and how much the first of them keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.analysis.aggregate import groups_of
from residual_audio.report.run_tables import Tables
from residual_audio.report.style import HEAT, PAGE, stage_colour
from residual_audio.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = (0.90, 0.99)


def scree(tables: Tables) -> Figure:
    """Share of each component, and of all up to it: median and quartiles over heads, by stage.

    By block where the encoder has one stage.
    """
    import matplotlib.pyplot as plt

    spectra = tables.need("spectra", "head_id", "space", "component", "share")
    heads = tables.need("heads", "head_id", "stage", "block")
    kind, members = groups_of(heads)
    shares = _by_head(spectra.where(spectra["space"] == "raw"), heads["head_id"])
    groups = list(dict.fromkeys(members))
    figure, (falling, kept) = plt.subplots(1, 2, figsize=(PAGE, 2.5))
    component = np.arange(1, shares.shape[1] + 1)
    for i, group in enumerate(groups):
        rows = shares[np.array(members) == group]
        rows = rows[np.isfinite(rows).any(axis=1)]
        if not len(rows):
            continue
        within = i / max(len(groups) - 1, 1)
        colour = stage_colour(int(group[1:])) if kind == "stage" else plt.get_cmap(HEAT)(within)
        for axes, values in ((falling, rows), (kept, np.cumsum(rows, axis=1))):
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
            axes.plot(component, middle, color=colour, label=f"{group} ({len(rows)} heads)")
            axes.fill_between(component, low, high, color=colour, alpha=0.15, linewidth=0)
    falling.set_yscale("log")
    falling.set_ylim(bottom=1e-4, top=1)
    falling.set_title("A  share of each component", loc="left")
    kept.set_ylim(0, 1.02)
    kept.set_title("B  share kept by the first components", loc="left")
    for level in LEVELS:
        kept.axhline(level, color="0.5", linewidth=0.6, linestyle="--", zorder=1)
        kept.text(component[-1], level - 0.015, f"{level:.0%}", ha="right", va="top", fontsize=6)
    for axes in (falling, kept):
        axes.set_xlim(1, component[-1])
        axes.set_xticks(component[:: max(1, len(component) // 12)])
        axes.set_xlabel("component")
    falling.set_ylabel("share of variance\n(median, quartiles)")
    handles, names = kept.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(groups), 6))
    return figure


def _by_head(spectra: Table, heads: Column) -> Column:
    """[head, component]; zero beyond a head's own width, NaN for a head without a spectrum."""
    row = {name: i for i, name in enumerate(heads)}
    out = np.zeros((len(heads), int(spectra["component"].max())))
    out[[row[name] for name in spectra["head_id"]], spectra["component"] - 1] = spectra["share"]
    out[out.sum(axis=1) == 0] = np.nan
    return out
