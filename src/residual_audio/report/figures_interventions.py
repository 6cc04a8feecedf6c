"""Figures of interventions: ablation, what predicts it, curves of removal, adaptation, sweeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from residual_audio.report.inputs import MissingTable, Tables
from residual_audio.report.style import COLUMN, PAGE, STAGE_COLOURS, stage_colour, stage_legend
from residual_audio.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND_COLOURS = {
    "reference": "#999999",
    "residual": STAGE_COLOURS[0],
    "network": STAGE_COLOURS[4],
    "control": STAGE_COLOURS[1],
    "rule": STAGE_COLOURS[3],
    "baseline": STAGE_COLOURS[2],
}


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
        mean = [np.nanmean(entropy[by_block == b]) for b in index]
        scatter.scatter(mean, drop, c=colours, s=12)
        for x, y, b in zip(mean, drop, index, strict=True):
            scatter.annotate(str(b), (x, y), fontsize=5, xytext=(2, 2), textcoords="offset points")
    except MissingTable:
        scatter.text(0.5, 0.5, "no head entropies", ha="center", transform=scatter.transAxes)
    scatter.set_xlabel("mean spectral entropy of heads")
    scatter.set_ylabel(f"{what} lost")
    stages = sorted(set(heads["stage"].astype(int).tolist()))
    boxes = spread.boxplot(
        [lost[heads["stage"] == s] for s in stages], patch_artist=True, widths=0.6, showfliers=True,
        flierprops={"markersize": 2},
    )  # fmt: skip
    for patch, stage in zip(boxes["boxes"], stages, strict=True):
        patch.set_facecolor(stage_colour(stage))
    spread.set_xticks(range(1, len(stages) + 1), [f"s{s}" for s in stages])
    spread.axhline(0, color="black", linewidth=0.4)
    spread.set_ylabel(f"margin lost, heads ({head_method})")
    return figure


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
    axes.barh(range(len(order)), part["spearman"].astype(float)[order], color=STAGE_COLOURS[0])
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
        colour = "#555555" if name == "random" else STAGE_COLOURS[i % len(STAGE_COLOURS)]
        style = ":" if name == "random" else "-"
        axes.plot(x, y, style, color=colour, label=str(name).replace("_", " "), marker=".")
        if name == "greedy":
            low, high = part["correct_low"].astype(float), part["correct_high"].astype(float)
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel(f"heads removed ({method})")
    axes.set_ylabel("top-1")
    axes.legend()
    return figure


def adaptation(tables: Tables) -> Figure:
    """Every method: top-1 over folds, and the paired gain over zero-shot with its interval."""
    import matplotlib.pyplot as plt

    table = tables.need("adapted", "method", "kind", "top1", "gain")
    table = table.where(np.isfinite(table["top1"].astype(float)))
    n = len(table)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(PAGE, 0.17 * n + 0.7), sharey=True, gridspec_kw={"width_ratios": [1, 1]}
    )
    y = np.arange(n)[::-1]
    colours = [KIND_COLOURS.get(str(k), "#999999") for k in table["kind"]]
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
        ecolor="#555555",
        elinewidth=0.6,
    )
    right.scatter(gain, y, c=colours, s=10, zorder=3)
    right.axvline(0, color="black", linewidth=0.4)
    right.set_xlabel("gain over zero-shot, paired 95% interval")
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
            color=STAGE_COLOURS[i % len(STAGE_COLOURS)], label=str(name),
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
        colour = "#555555" if name == "random" else STAGE_COLOURS[i % len(STAGE_COLOURS)]
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
    """How far the gains of each head moved, over folds."""
    import matplotlib.pyplot as plt

    table = tables.need("gains_units", "unit", "moved", "mean_gain")
    names = list(dict.fromkeys(table["unit"].tolist()))
    moved = np.array([table["moved"].astype(float)[table["unit"] == n].mean() for n in names])
    mean = np.array([table["mean_gain"].astype(float)[table["unit"] == n].mean() for n in names])
    stages = [int(str(n)[1:].split(".")[0]) for n in names]
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(PAGE, 2.6), sharex=True)
    colours = [stage_colour(s) for s in stages]
    top.bar(range(len(names)), moved, color=colours, width=1.0)
    top.set_ylabel("mean |λ − 1|")
    bottom.bar(range(len(names)), mean - 1, color=colours, width=1.0)
    bottom.axhline(0, color="black", linewidth=0.4)
    bottom.set_ylabel("mean λ − 1")
    bottom.set_xlabel("head, in order of computation")
    stage_legend(figure, sorted(set(stages)), below=True)
    return figure


def sweep_parallel(tables: Tables) -> Figure:
    """Every trial as a line through its settings, by held-out accuracy; boxes by stages."""
    import matplotlib.pyplot as plt

    table = tables.need("sweep_trials", "held_out_top1", "stages", "learning_rate")
    axes_of = [c for c in ("stages", "components", "learning_rate", "epochs", "l2") if c in table]
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


def _place(column: Any) -> Any:
    """A column between 0 and 1: numbers by their logarithm, names by their order."""
    try:
        x = np.log10(np.maximum(column.astype(float), 1e-12))
    except (TypeError, ValueError):
        names = sorted({str(v) for v in column.tolist()})
        x = np.array([names.index(str(v)) for v in column.tolist()], float)
    span = np.ptp(x)
    return (x - x.min()) / span if span > 0 else np.full(len(x), 0.5)


FIGURES: dict[str, tuple[Callable[[Tables], Figure], str]] = {
    "fisher_vs_ablation": (
        fisher_against_ablation,
        "Cheap metrics of every head against what its removal costs.",
    ),
    "block_ablation": (
        block_ablation,
        "Accuracy lost without each block's attention; against entropy; heads by stage.",
    ),
    "ablation_predictors": (ablation_predictors, "Which cheap metric predicts importance?"),
    "removal_curves": (removal_curves, "Accuracy against heads removed, least important first."),
    "adaptation": (adaptation, "Adaptations on the same grouped folds, and their paired gains."),
    "few_shot": (few_shot, "Adaptation from few clips a class."),
    "retention": (retention, "How many components does a head need?"),
    "pruning": (pruning, "Heads taken out of the weights: accuracy, and the time it saves."),
    "gains_by_head": (gains_by_head, "Which heads the gains moved."),
    "sweep": (sweep_parallel, "Settings and held-out accuracy of every trial."),
}
