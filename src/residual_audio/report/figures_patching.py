"""Figures of patching: which heads carry it, how many are needed, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import COLUMN, DIVERGING, PAGE, series_colour
from residual_audio.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAYS = ("exact", "attribution", "direct")


def patching_heads(tables: Tables) -> Figure:
    """Effect of every head, a row a block; a dot where q ≤ 0.05."""
    import matplotlib.pyplot as plt

    found: dict[str, Table] = {}
    for way in WAYS:
        try:
            table = tables.need(f"patching_units_{way}", "effect_by_gap", "head")
        except MissingTable:
            continue
        heads = table.where(table["head"] >= 0)
        if len(heads):
            found[way] = heads
    if not found:
        raise MissingTable("no heads were patched in this run")
    figure, grid = plt.subplots(
        1, len(found), figsize=(PAGE if len(found) > 1 else COLUMN, 2.6), squeeze=False
    )
    for ax, (way, heads) in zip(grid[0], found.items(), strict=True):
        blocks, rows = np.unique(heads["block_index"].astype(int), return_inverse=True)
        columns = heads["head"].astype(int)
        picture = np.full((len(blocks), columns.max() + 1), np.nan)
        picture[rows, columns] = heads["effect_by_gap"].astype(float)
        limit = np.nanmax(np.abs(picture)) or 1.0
        image = ax.imshow(picture, aspect="auto", cmap=DIVERGING, vmin=-limit, vmax=limit)
        sure = heads["q"].astype(float) <= 0.05
        ax.plot(columns[sure], rows[sure], ".", color="black", markersize=2)
        names = {
            int(b): f"s{int(s)}.b{int(k)}"
            for b, s, k in zip(rows, heads["stage"], heads["block"], strict=True)
        }
        ax.set_yticks(sorted(names), [names[b] for b in sorted(names)])
        ax.set_xlabel("head")
        ax.set_title(way)
        figure.colorbar(image, ax=ax, label="effect (0 corrupt, 1 clean)")
    return figure


def _line(ax: Axes, x: Column, table: Table, number: int, name: str) -> None:
    """Effects with their 95% intervals, where the table has them."""
    values, colour = table["effect_by_gap"].astype(float), series_colour(number)
    ax.plot(x, values, "o-", color=colour, label=name)
    if "effect_by_gap_low" in table:
        low, high = (table[f"effect_by_gap_{end}"].astype(float) for end in ("low", "high"))
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def patching_sets(tables: Tables) -> Figure:
    """How much the first k units of an order carry together; bands are 95% intervals."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    table = tables.need("patching_sets", "order", "units", "effect_by_gap")
    figure, ax = plt.subplots(figsize=(COLUMN, 2.4))
    for i, name in enumerate(dict.fromkeys(table["order"].tolist())):
        mine = table.where(table["order"] == name)
        _line(ax, mine["units"].astype(int), mine, i, name)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.axhline(0, color="black", linewidth=0.4)
    ax.axhline(1, color="black", linewidth=0.4, linestyle=":")
    ax.set_xlabel("units exchanged")
    ax.set_ylabel("effect (0 corrupt, 1 clean)")
    ax.legend()
    return figure


def patching_time(tables: Tables) -> Figure:
    """Effect of each time window of a unit, one line a unit; bands are 95% intervals."""
    import matplotlib.pyplot as plt

    table = tables.need("patching_time", "unit", "start_s", "end_s", "effect_by_gap")
    figure, ax = plt.subplots(figsize=(COLUMN, 2.4))
    for i, name in enumerate(dict.fromkeys(table["unit"].tolist())):
        mine = table.where(table["unit"] == name)
        middle = (mine["start_s"].astype(float) + mine["end_s"].astype(float)) / 2
        _line(ax, middle, mine, i, str(name))
    ax.axhline(0, color="black", linewidth=0.4)
    ax.set_xlabel("seconds")
    ax.set_ylabel("effect of a window")
    ax.legend()
    return figure
