"""Figures of likeness: fingerprints, similarity in Ward order, the map of fingerprints."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import COLUMN, HEAT, stage_colour, stage_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def stage_bar(axes: Axes, stages: np.ndarray, vertical: bool) -> None:
    """A strip of stage colours along heads."""
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(stage_colour(s)) for s in stages])
    axes.imshow(
        colours[:, None] if vertical else colours[None], aspect="auto", interpolation="none"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def spectral_fingerprints(tables: Tables) -> Figure:
    """Share of every component of every head; a logarithmic scale, three decades deep."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    spectra = tables.need("spectra", "head_id", "space", "component", "share")
    heads = tables.need("heads", "stage")
    raw = spectra.where(spectra["space"] == "raw")
    row = {name: i for i, name in enumerate(heads["head_id"])}
    image = np.full((len(heads), int(raw["component"].max())), np.nan)
    image[[row[h] for h in raw["head_id"]], raw["component"] - 1] = raw["share"]
    figure, (bar, axes) = plt.subplots(
        1, 2, figsize=(COLUMN, 4.2), gridspec_kw={"width_ratios": [1, 24]}
    )
    stage_bar(bar, heads["stage"], vertical=True)
    shown = axes.imshow(
        np.clip(image, 1e-3, 1), aspect="auto", cmap=HEAT, norm=LogNorm(1e-3, 1),
        interpolation="none", extent=(0.5, image.shape[1] + 0.5, len(heads), 0),
    )  # fmt: skip
    axes.set_xlabel("component")
    axes.set_yticks([])
    for edge in np.flatnonzero(np.diff(heads["stage"])):
        axes.axhline(edge + 1, color="white", linewidth=0.8)
    places = [np.flatnonzero(heads["stage"] == s).mean() for s in np.unique(heads["stage"])]
    bar.set_yticks(places, [f"s{s}" for s in np.unique(heads["stage"])])
    bar.tick_params(length=0)
    figure.colorbar(shown, ax=axes, label="share of variance", shrink=0.6, pad=0.02)
    return figure


def matrix(tables: Tables, column: str) -> np.ndarray:
    """A symmetric matrix [head, head] in the order of the per-head table, ones on the diagonal."""
    pairs = tables.need("similarity", "head_a", "head_b")
    if column not in pairs:
        raise MissingTable(f"the similarity table has no '{column}'")
    heads = tables.need("heads", "stage")["head_id"]
    row = {name: i for i, name in enumerate(heads)}
    a, b = ([row[h] for h in pairs[k]] for k in ("head_a", "head_b"))
    out = np.eye(len(heads))
    out[a, b] = out[b, a] = pairs[column]
    return out


def similarity_matrix(tables: Tables) -> Figure:
    """Cosine of eigenspectra, heads in Ward order, stages as a bar."""
    order = np.argsort(tables.need("fingerprints", "ward_order")["ward_order"])
    found = tables.statistics.get("similarity", {}).get("spectral_cosine", {})
    title = "cosine of eigenspectra, Ward order"
    if found.get("cross") is not None:  # there are pairs across stages
        title += f"\nwithin stages {found['within']:.3f}, across {found['cross']:.3f}"
    return _draw(tables, matrix(tables, "spectral_cosine"), order, title)


def cka_matrix(tables: Tables) -> Figure:
    """Linear CKA over clips, heads in order of computation."""
    values = matrix(tables, "cka")
    return _draw(tables, values, np.arange(len(values)), "linear CKA, order of computation")


def subspace_matrix(tables: Tables) -> Figure:
    """Overlap of leading directions in the stream, inside stages, heads in order of computation."""
    values = matrix(tables, "subspace")
    np.fill_diagonal(values, np.nan)
    title = "overlap of leading directions in the stream\n(only inside a stage)"
    return _draw(tables, values, np.arange(len(values)), title)


def _draw(tables: Tables, values: np.ndarray, order: np.ndarray, title: str) -> Figure:
    import matplotlib.pyplot as plt

    stages = tables.need("heads", "stage")["stage"][order]
    image = values[np.ix_(order, order)]
    off = image[~np.eye(len(image), dtype=bool)]
    low, high = np.nanquantile(off, [0.01, 0.999]) if np.isfinite(off).any() else (0.0, 1.0)
    if np.isfinite(np.diag(image)).any():
        high = 1.0
    figure, grid = plt.subplots(
        2, 2, figsize=(COLUMN, 3.5),
        gridspec_kw={"width_ratios": [1, 22], "height_ratios": [22, 1], "wspace": 0, "hspace": 0},
    )  # fmt: skip
    stage_bar(grid[0, 0], stages, vertical=True)
    stage_bar(grid[1, 1], stages, vertical=False)
    grid[1, 0].axis("off")
    axes = grid[0, 1]
    shown = axes.imshow(image, cmap=HEAT, vmin=low, vmax=high, interpolation="none", aspect="auto")
    axes.set_facecolor("0.9")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(title, loc="left")
    figure.colorbar(shown, ax=grid[:, 1], shrink=0.7, pad=0.02)
    present = sorted(set(stages.tolist()))
    stage_legend(grid[1, 1], present, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncol=4)
    return figure


def fingerprint_map(tables: Tables) -> Figure:
    """Heads laid out by the shape of their spectrum."""
    import matplotlib.pyplot as plt

    table = tables.need("fingerprints", "map_x", "map_y", "stage")
    figure, axes = plt.subplots(figsize=(COLUMN, 3.0))
    for stage in np.unique(table["stage"]):
        chosen = table["stage"] == stage
        axes.scatter(
            table["map_x"][chosen], table["map_y"][chosen], s=12, color=stage_colour(stage),
            alpha=0.85, linewidths=0,
        )  # fmt: skip
    how = tables.note("fingerprints") or "eigenspectra of heads"
    axes.set_title("\n".join(textwrap.wrap(how, 40)), loc="left")
    axes.set_xticks([])
    axes.set_yticks([])
    stage_legend(axes, sorted(set(table["stage"].tolist())), loc="best")
    return figure
