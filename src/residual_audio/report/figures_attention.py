"""Figures of what lies below the pooled heads: attention maps, tokens, streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.analysis.columns import label
from residual_audio.report.figures_heads import block_bands
from residual_audio.report.figures_stages import stage_marks
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import (
    MARKERS,
    NEUTRAL,
    PAGE,
    SERIES_COLOURS,
    series_colour,
    stage_colour,
    stage_legend,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_participation(tables: Tables) -> Figure:
    """Participation ratio of attention maps: by head, by stage, and against the number of maps."""
    import matplotlib.pyplot as plt

    table = tables.need("attention", "stage", "block", "pr")
    stages = table["stage"]
    figure, (heads, means, sample) = plt.subplots(
        1, 3, figsize=(PAGE, 2.3), gridspec_kw={"width_ratios": [2.2, 1, 1.3]}
    )
    x, values = np.arange(len(table)), table["pr"].astype(float)
    index = np.unique(np.stack([stages, table["block"]], 1), axis=0, return_inverse=True)[1]
    block_bands(heads, index.ravel())
    for stage in np.unique(stages):
        chosen = stages == stage
        colour = stage_colour(stage)
        heads.scatter(x[chosen], values[chosen], s=6, color=colour, linewidths=0)
        if "pr_within" in table:
            inner = table["pr_within"].astype(float)[chosen]
            heads.scatter(
                x[chosen], inner, s=7, facecolors="none", edgecolors=colour, linewidths=0.5
            )
        means.bar(
            int(stage), np.nanmean(values[chosen]), yerr=np.nanstd(values[chosen]),
            color=stage_colour(stage), error_kw={"elinewidth": 0.6, "capsize": 2},
        )  # fmt: skip
    heads.set_xlim(-1, len(table))
    heads.set_xlabel("head, in order of computation")
    heads.set_ylabel("participation ratio")
    within = "\n(open: mean map of each window taken out)" if "pr_within" in table else ""
    heads.set_title(f"A  maps of each head{within}", loc="left")
    heads.set_ylim(bottom=0)
    present = sorted(set(stages.tolist()))
    means.set_xticks(present, [f"s{s}" for s in present])
    means.set_title("B  mean by stage", loc="left")
    sizes = sorted(set(table["n_maps"].tolist()))
    means.set_xlabel(f"{', '.join(map(str, sizes))} maps a head")
    try:
        curve = tables.need("attention_sample", "stage", "n_maps", "pr")
    except MissingTable:
        sample.axis("off")
        return figure
    for stage in np.unique(curve["stage"]):
        part = curve.where(curve["stage"] == stage)
        ns = sorted(set(part["n_maps"].tolist()))
        pr = [np.nanmean(part["pr"][part["n_maps"] == n]) for n in ns]
        sample.plot(ns, pr, marker="o", color=stage_colour(stage))
    sample.set_xscale("log", base=2)
    ticks = sorted(set(curve["n_maps"].tolist()))
    sample.set_xticks(ticks, [str(t) for t in ticks])
    sample.minorticks_off()
    sample.set_ylim(bottom=0)
    sample.set_xlabel("maps used")
    sample.set_title("C  sample size alone", loc="left")
    stage_legend(sample, present, loc="upper left")
    return figure


def pooling_shares(tables: Tables) -> Figure:
    """Where the variance of head outputs lies: what the clip mean keeps, what it discards."""
    import matplotlib.pyplot as plt

    table = tables.need("pooling", "share_clip", "share_time", "share_frequency", "share_rest")
    heads = tables.need("heads", "block_index", "stage")
    block = dict(zip(heads["head_id"], heads["block_index"], strict=True))
    index = np.array([block[h] for h in table["head_id"]])
    blocks = np.unique(index)
    figure, axes = plt.subplots(figsize=(PAGE, 2.3))
    bottom = np.zeros(len(blocks))
    parts = (
        ("clip", "clip mean (kept)"),
        ("time", "time"),
        ("frequency", "frequency"),
        ("rest", "rest"),
    )
    for (name, text), colour in zip(parts, (*SERIES_COLOURS[:3], NEUTRAL), strict=True):
        share = [np.nanmean(table[f"share_{name}"][index == b]) for b in blocks]
        axes.bar(blocks, share, bottom=bottom, color=colour, label=text, width=0.85)
        bottom += share
    stages = np.array([heads["stage"][heads["block_index"] == b][0] for b in blocks])
    stage_marks(axes, stages)
    axes.set_xticks(blocks)
    axes.set_xlabel("block")
    axes.set_ylabel("share of variance\n(mean over heads)")
    axes.set_ylim(0, 1)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def streams(tables: Tables) -> Figure:
    """Dimension of the residual stream, attention output and MLP output of every block."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    units = tables.need("units", "unit", "kind", "pca_99", "pr", "twonn")
    blocks = units.where(units["kind"] == "blocks")
    if not len(blocks):
        raise MissingTable("blocks were not captured")
    place = [name.split("/")[1] for name in blocks["unit"]]
    part = np.array([name.split("/")[2] for name in blocks["unit"]])
    order = list(dict.fromkeys(place))
    x = np.array([order.index(p) for p in place])
    stages = np.array([int(p.split(".")[0][1:]) for p in order])
    known = [n for n in ("pca_99", "pr", "twonn") if np.isfinite(blocks[n].astype(float)).any()]
    if not known:
        raise MissingTable("no dimension of a block could be told from so few clips")
    figure, grid = plt.subplots(1, len(known), figsize=(PAGE, 2.4), squeeze=False)
    for axes, name in zip(grid[0], known, strict=True):
        for i, kind in enumerate(dict.fromkeys(part.tolist())):
            chosen = part == kind
            axes.plot(
                x[chosen], blocks[name][chosen].astype(float), marker=MARKERS[i],
                color=series_colour(i), label=kind,
            )  # fmt: skip
        stage_marks(axes, stages)
        axes.set_title(label(name), loc="left", pad=12)
        axes.set_xlabel("block")
        axes.set_xlim(-0.5, len(order) - 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
    lines, names = grid[0, 0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=len(names))
    return figure
