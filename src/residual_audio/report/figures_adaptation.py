"""Figures of adaptation: methods, few clips, components kept, heads pruned, gains, sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import (
    COLUMN,
    CONTROL,
    NEUTRAL,
    PAGE,
    SERIES_COLOURS,
    STAGE_COLOURS,
    series_colour,
    stage_colour,
    stage_legend,
)
from residual_audio.table import Column
from residual_audio.types import stage_named

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND_COLOURS = {
    "reference": NEUTRAL,
    "residual": STAGE_COLOURS[0],
    "network": STAGE_COLOURS[4],
    "control": STAGE_COLOURS[1],
    "rule": STAGE_COLOURS[3],
    "baseline": STAGE_COLOURS[2],
}
FEW_UNITS = 40
"""Bars that have room for their names."""


def adaptation(tables: Tables) -> Figure:
    """Every method: top-1 over folds, and the paired gain over the model as it is."""
    import matplotlib.pyplot as plt

    table = tables.need("adapted", "method", "kind", "top1", "gain")
    table = table.where(np.isfinite(table["top1"].astype(float)))
    n = len(table)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(PAGE, 0.17 * n + 0.7), sharey=True, gridspec_kw={"width_ratios": [1, 1]}
    )
    y = np.arange(n)[::-1]
    colours = [KIND_COLOURS.get(str(k), NEUTRAL) for k in table["kind"]]
    std = np.nan_to_num(table["top1_fold_std"].astype(float))
    left.barh(y, table["top1"].astype(float), color=colours, xerr=std, error_kw={"linewidth": 0.5})
    names = [
        f"{m} ({int(p):,})" if p else str(m)
        for m, p in zip(table["method"], table["parameters"].astype(float), strict=True)
    ]
    left.set_yticks(y, names, fontsize=6)
    left.set_xlabel("top-1 (bar: std over folds)")
    gain = table["gain"].astype(float)
    ends = np.stack(
        [gain - table["gain_low"].astype(float), table["gain_high"].astype(float) - gain]
    )
    right.errorbar(
        gain,
        y,
        xerr=np.maximum(np.nan_to_num(ends), 0),
        fmt="none",
        ecolor=CONTROL,
        elinewidth=0.6,
    )
    right.scatter(gain, y, c=colours, s=10, zorder=3)
    right.axvline(0, color="black", linewidth=0.4)
    before = [str(m) for m in table.where(table["kind"] == "reference")["method"]]
    right.set_xlabel(f"gain over {before[0] if before else 'zero-shot'}\n(paired 95% interval)")
    engine = figure.get_layout_engine()
    if engine is not None:  # long names are wider in the file than when they were measured
        engine.set(w_pad=0.1)  # type: ignore[call-arg]
    return figure


def few_shot(tables: Tables) -> Figure:
    """Top-1 against training clips a class."""
    import matplotlib.pyplot as plt

    table = tables.need("adapted_few_shot", "shots", "method", "top1")
    figure, axes = plt.subplots(figsize=(COLUMN, 2.4))
    for i, name in enumerate(dict.fromkeys(table["method"].tolist())):
        part = table.where(table["method"] == name)
        style = ":" if name == "zero-shot" else "-"
        axes.plot(
            part["shots"].astype(float), part["top1"].astype(float), style, marker=".",
            color=series_colour(i), label=str(name),
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    shots = sorted(set(table["shots"].astype(int).tolist()))
    axes.set_xticks(shots, [str(s) for s in shots])
    axes.set_xlabel("training clips a class")
    axes.set_ylabel("top-1")
    axes.legend(fontsize=5.5)
    return figure


def retention(tables: Tables) -> Figure:
    """Accuracy against components kept a head, by stage."""
    import matplotlib.pyplot as plt

    found = []
    for path in ("network", "direct"):
        try:
            found.append((path, tables.need(f"retention_{path}", "stages", "k", "top1")))
        except MissingTable:
            continue
    if not found:
        raise MissingTable("no retention curve in this run")
    figure, axes = plt.subplots(1, len(found), figsize=(COLUMN * len(found), 2.2), squeeze=False)
    for ax, (path, table) in zip(axes[0], found, strict=True):
        for stages in dict.fromkeys(str(s) for s in table["stages"].tolist()):
            part = table.where(np.array([str(s) == stages for s in table["stages"].tolist()]))
            single = len(stages) == 1
            ax.plot(
                part["k"].astype(float), part["top1"].astype(float), marker=".",
                color=stage_colour(int(stages)) if single else "black",
                label=f"stage {stages}" if single else "all stages",
            )  # fmt: skip
        ax.set_xlabel(f"components kept a head ({path})")
        ax.set_ylabel("top-1")
        ax.legend()
    return figure


def pruning(tables: Tables) -> Figure:
    """Accuracy of pruned encoders against the time they save, by order of removal."""
    import matplotlib.pyplot as plt

    table = tables.need("pruning", "order", "removed", "top1", "time_saved")
    figure, (by_heads, by_time) = plt.subplots(1, 2, figsize=(2 * COLUMN, 2.2), sharey=True)
    for i, name in enumerate(dict.fromkeys(table["order"].tolist())):
        part = table.where(table["order"] == name)
        colour = CONTROL if name == "random" else series_colour(i)
        style = ":" if name == "random" else "-"
        top1 = part["top1"].astype(float)
        by_heads.plot(
            part["removed"].astype(float), top1, style, color=colour, marker=".", label=str(name)
        )
        saved = 100 * part["time_saved"].astype(float)
        by_time.plot(saved, top1, style, color=colour, marker=".")
    by_heads.set_xlabel("heads pruned, least important first")
    by_heads.set_ylabel("top-1")
    by_heads.legend()
    by_time.set_xlabel("time saved (%)")
    return figure


def gains_by_head(tables: Tables) -> Figure:
    """How far the gains of each head, site or stage moved, over folds."""
    import matplotlib.pyplot as plt

    table = tables.need("gains_units", "unit", "moved", "mean_gain")
    names = list(dict.fromkeys(table["unit"].tolist()))
    moved = np.array([table["moved"].astype(float)[table["unit"] == n].mean() for n in names])
    mean = np.array([table["mean_gain"].astype(float)[table["unit"] == n].mean() for n in names])
    stages = [stage_named(str(n)) for n in names]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(PAGE, 2.6), sharex=True)
    colours = [NEUTRAL if s < 0 else stage_colour(s) for s in stages]
    top.bar(range(len(names)), moved, color=colours, width=1.0)
    top.set_ylabel("mean |λ − 1|")
    bottom.bar(range(len(names)), mean - 1, color=colours, width=1.0)
    bottom.axhline(0, color="black", linewidth=0.4)
    bottom.set_ylabel("mean λ − 1")
    few = len(names) <= FEW_UNITS
    bottom.set_xticks(range(len(names)) if few else [], names if few else [], rotation=90)
    heads_alone = all(str(name).rpartition(".")[2].startswith("h") for name in names)
    what = "units" if few else "heads" if heads_alone else "heads, then other units,"
    bottom.set_xlabel(f"{what} in order of computation")
    stage_legend(figure, sorted(set(stages) - {-1}), below=True)
    return figure


def sweep_parallel(tables: Tables) -> Figure:
    """Every trial as a line through its settings, by held-out accuracy; boxes by stages."""
    import matplotlib.pyplot as plt

    table = tables.need("sweep_trials", "held_out_top1", "stages", "learning_rate")
    axes_of = [
        c for c in ("stages", "components", "learning_rate", "epochs", "ridge") if c in table
    ]
    figure, (lines, boxes) = plt.subplots(
        1, 2, figsize=(PAGE, 2.6), gridspec_kw={"width_ratios": [2, 1]}
    )
    value = table["held_out_top1"].astype(float)
    columns = [*axes_of, "held_out_top1"]
    places = np.stack([_place(table[c]) for c in columns], 1)
    span = max(float(np.ptp(value)), 1e-9)
    for i in np.argsort(value):
        colour = plt.get_cmap("viridis")((value[i] - value.min()) / span)
        lines.plot(range(len(columns)), places[i], color=colour, linewidth=0.6, alpha=0.8)
    lines.set_xticks(range(len(columns)), [c.replace("_", " ") for c in columns])
    lines.set_yticks([0, 1], ["low", "high"])
    sets = sorted(dict.fromkeys(str(s) for s in table["stages"].tolist()))
    groups = [value[np.array([str(s) == name for s in table["stages"].tolist()])] for name in sets]
    boxes.boxplot(groups, widths=0.6)
    boxes.set_xticks(range(1, len(sets) + 1), sets, rotation=45)
    boxes.set_ylabel("held-out top-1")
    return figure


def _place(column: Column) -> Column:
    """A column between 0 and 1: numbers by their logarithm, names by their order."""
    try:
        x = np.log10(np.maximum(column.astype(float), 1e-12))
    except (TypeError, ValueError):
        names = sorted({str(v) for v in column.tolist()})
        x = np.array([names.index(str(v)) for v in column.tolist()], float)
    span = np.ptp(x)
    return (x - x.min()) / span if span > 0 else np.full(len(x), 0.5)


def front(tables: Tables) -> Figure:
    """Top-1 here against accuracy lost on references, and against how far embeddings move."""
    import matplotlib.pyplot as plt

    table = tables.need("front", "family", "setting", "top1", "lost", "shift")
    figure, panels = plt.subplots(1, 2, figsize=(PAGE, 0.42 * PAGE), sharey=True)
    names = list(dict.fromkeys(str(name) for name in table["family"]))
    for i, name in enumerate(names):
        part = table.where(np.array([str(f) == name for f in table["family"]]))
        top1 = 100 * part["top1"].astype(float)
        # where colours begin again, another mark and line
        mark, line = ("o", "-") if i < len(SERIES_COLOURS) else ("s", "--")
        for panel, x in zip(
            panels, (100 * part["lost"].astype(float), part["shift"].astype(float)), strict=True
        ):
            panel.plot(x, top1, line, marker=mark, markersize=3, color=series_colour(i), label=name)
    base = 100 * float(np.mean(table["zero_shot"].astype(float)))
    for panel in panels:
        panel.axhline(base, color=NEUTRAL, linewidth=0.6, linestyle=":")
    panels[1].set_xscale("log")
    panels[0].set_xlabel("accuracy lost on references (points)")
    panels[1].set_xlabel("embeddings moved here (1 − cosine)")
    panels[0].set_ylabel("top-1 here (%)")
    panels[0].legend(fontsize=6)
    return figure


def trade(tables: Tables) -> Figure:
    """Top-1 of bounded gains against stability over folds, a line for each number of units."""
    import matplotlib.pyplot as plt

    table = tables.need("trade", "share", "ridge", "top1", "stability", "units_moved")
    figure, panel = plt.subplots(figsize=(COLUMN, 0.8 * COLUMN))
    shares = sorted({float(share) for share in table["share"]})
    for i, share in enumerate(shares):
        part = table.where(np.array([float(s) == share for s in table["share"]]))
        moved = f"{float(np.mean(part['units_moved'].astype(float))):.0f} units"
        x, y = part["stability"].astype(float), 100 * part["top1"].astype(float)
        panel.plot(x, y, marker="o", markersize=3, color=series_colour(i), label=moved)
    panel.set_xlabel("stability over folds (cosine)")
    panel.set_ylabel("top-1 (%)")
    panel.legend(fontsize=6)
    return figure
