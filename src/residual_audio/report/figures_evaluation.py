"""Figures of the evaluation: probes against scores, box plots of ratings, the line behind FAD∞."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from residual_audio.report.style import MARKERS, series_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from residual_audio.geometry.cells import Cells
    from residual_audio.geometry.correlates import CorrelationStudy
    from residual_audio.metrics.frechet import Extrapolated

Array = npt.NDArray[Any]


def _axes(rows: int, columns: int, width: float, height: float) -> tuple[Figure, Array]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.atleast_2d(figure.subplots(rows, columns, squeeze=False))


def scatter(cells: Cells, study: CorrelationStudy, score: str, n_probes: int = 6) -> Figure:
    """The probes that correlate most with one score: one point a cell."""
    rows = [row for row in study.rows if row.score == score and row.spearman == row.spearman]
    rows = rows[:n_probes]
    columns = min(3, max(1, len(rows)))
    figure, axes = _axes(-(-max(1, len(rows)) // columns), columns, 3.1, 2.7)
    models, benchmarks = list(dict.fromkeys(cells.models)), list(dict.fromkeys(cells.benchmarks))
    for ax, row in zip(axes.ravel(), rows, strict=False):
        x, y = cells.probes[row.probe], cells.scores[score]
        for i, (model, benchmark) in enumerate(zip(cells.models, cells.benchmarks, strict=True)):
            ax.scatter(
                x[i],
                y[i],
                color=series_colour(models.index(model)),
                marker=MARKERS[benchmarks.index(benchmark) % len(MARKERS)],
                s=32,
            )
        ax.set_title(f"ρ = {row.spearman:+.2f}, r = {row.pearson:+.2f}, n = {row.n}", fontsize=9)
        ax.set_xlabel(row.probe, fontsize=9)
        ax.set_ylabel(score, fontsize=9)
        ax.tick_params(labelsize=8)
    for ax in axes.ravel()[len(rows) :]:
        ax.set_visible(False)
    _legend(figure, models, benchmarks)
    return figure


def _legend(figure: Figure, models: list[str], benchmarks: list[str]) -> None:
    from matplotlib.lines import Line2D

    if len(models) > 12:
        return
    handles = [
        Line2D([], [], color=series_colour(i), marker="o", ls="", label=model)
        for i, model in enumerate(models)
    ]
    if len(benchmarks) > 1:
        handles += [
            Line2D([], [], color="0.4", marker=MARKERS[i % len(MARKERS)], ls="", label=name)
            for i, name in enumerate(benchmarks)
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def rating_boxes(
    names: Sequence[str], ratings: Sequence[Array], scale: tuple[float, float]
) -> Figure:
    """Ratings of each system: box, median and mean."""
    figure, axes = _axes(1, 1, max(3.2, 0.9 * len(names) + 1.2), 3.2)
    ax = axes[0, 0]
    ax.boxplot(
        [np.asarray(r) for r in ratings],
        tick_labels=list(names),
        showmeans=True,
        medianprops={"color": series_colour(1)},
        meanprops={
            "markerfacecolor": series_colour(0),
            "markeredgecolor": series_colour(0),
            "marker": "D",
        },
        flierprops={"markersize": 3},
    )
    margin = 0.03 * (scale[1] - scale[0])
    ax.set_ylim(scale[0] - margin, scale[1] + margin)
    ax.set_ylabel("rating")
    ax.tick_params(axis="x", labelrotation=30 if max(map(len, names)) > 8 else 0)
    return figure


def extrapolation(found: Extrapolated) -> Figure:
    """FAD against 1 / share of the files, and the line that is read at 0."""
    figure, axes = _axes(1, 1, 3.6, 2.8)
    ax = axes[0, 0]
    at = 1 / found.fractions
    ax.scatter(at, found.distances, s=14, color=series_colour(0))
    line = np.array([0.0, at.max()])
    ax.plot(line, found.value + found.slope * line, color=series_colour(1), lw=1)
    ax.errorbar(
        [0], [found.value], yerr=[1.96 * found.standard_error], color=series_colour(1), capsize=3
    )
    ax.set_xlabel("1 / share of the files")
    ax.set_ylabel("FAD")
    return figure
