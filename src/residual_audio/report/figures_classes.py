"""Figures of classes: activation by class, Fisher ratio and probe accuracy of every head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from residual_audio.metrics.similarity import ward
from residual_audio.report.figures_heads import block_bands
from residual_audio.report.figures_similarity import stage_bar
from residual_audio.report.run_tables import Tables
from residual_audio.report.style import DIVERGING, PAGE, stage_colour, stage_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def class_activation(tables: Tables) -> Figure:
    """How far each class moves each head from its mean, relative to the head's own average."""
    import matplotlib.pyplot as plt

    table = tables.need("class_activation", "head_id", "class", "deviation")
    heads = tables.need("heads", "stage")
    names = list(dict.fromkeys(table["class"].tolist()))
    image = table["deviation"].astype(float).reshape(-1, len(names))  # head, class
    with np.errstate(divide="ignore", invalid="ignore"):
        image = np.log2(image / image.mean(axis=1, keepdims=True))
    columns = ward(np.nan_to_num(image).T).order if len(names) > 2 else np.arange(len(names))
    limit = float(np.nanquantile(np.abs(image), 0.99)) or 1.0
    figure, (bar, axes) = plt.subplots(
        1, 2, figsize=(PAGE, 4.4), gridspec_kw={"width_ratios": [1, 60]}
    )
    stages = heads["stage"]
    stage_bar(bar, stages, vertical=True)
    places = [np.flatnonzero(stages == s).mean() for s in np.unique(stages)]
    bar.set_yticks(places, [f"s{s}" for s in np.unique(stages)])
    bar.tick_params(length=0)
    shown = axes.imshow(
        image[:, columns], aspect="auto", cmap=DIVERGING, vmin=-limit, vmax=limit,
        interpolation="none",
    )  # fmt: skip
    size = 6 if len(names) <= 30 else 5
    labels = [names[i].replace("_", " ") for i in columns]
    axes.set_xticks(range(len(names)), labels, rotation=90, fontsize=size)
    axes.set_yticks([])
    for edge in np.flatnonzero(np.diff(stages)):
        axes.axhline(edge + 0.5, color="black", linewidth=0.6)
    figure.colorbar(
        shown, ax=axes, shrink=0.6, pad=0.01, label="log₂ of mean deviation / head's average"
    )
    return figure


def fisher_discriminability(tables: Tables) -> Figure:
    """Fisher ratio of every head, and what a linear probe of that head alone reaches."""
    import matplotlib.pyplot as plt

    table = tables.need("fisher", "head_id", "fisher_trace")
    heads = tables.need("heads", "stage", "block_index")
    stages, x = heads["stage"], np.arange(len(heads))
    colours = [stage_colour(s) for s in stages]
    with_probe = "probe_accuracy" in table
    rows = 2 if with_probe else 1
    figure, grid = plt.subplots(rows, 1, figsize=(PAGE, 1.7 * rows + 0.3), squeeze=False)
    axes = grid[0, 0]
    axes.bar(x, table["fisher_trace"].astype(float), width=0.9, color=colours)
    axes.set_ylabel("tr $S_B$ / tr $S_W$")
    axes.set_title("A  Fisher discriminability", loc="left")
    if with_probe:
        below = grid[1, 0]
        accuracy = table["probe_accuracy"].astype(float)
        if "probe_low" in table:
            below.vlines(
                x, table["probe_low"].astype(float), table["probe_high"].astype(float),
                color="0.6", linewidth=0.7, zorder=2,
            )  # fmt: skip
        below.scatter(x, accuracy, s=6, c=colours, linewidths=0, zorder=3)
        chance = float(table["probe_chance"][0])
        below.axhline(chance, color="black", linewidth=0.7, linestyle="--")
        below.text(len(x), chance, "chance", ha="right", va="bottom", fontsize=6.5)
        below.set_ylim(bottom=0)
        below.set_ylabel("held-out accuracy")
        below.set_title("B  Linear probe of one head (95% interval)", loc="left")
    for part in grid[:, 0]:
        block_bands(part, heads["block_index"])
        part.set_xlim(-1, len(heads))
    grid[-1, 0].set_xlabel("head, in order of computation")
    present = sorted(set(stages.tolist()))
    stage_legend(figure, present, below=True)
    return figure
