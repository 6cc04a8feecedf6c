"""The picture of a time map: the mel that was heard, and under it what each moment contributed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from residual_audio.report.style import COLUMN, HEAT, save, stage_colour, styled
from residual_audio.report.table_files import write_csv
from residual_audio.results import slug
from residual_audio.table import from_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from residual_audio.direct.time_map import TimeMap


def time_map_figure(found: TimeMap) -> Figure:
    """Mel above; below, one line a stage and their sum, as contribution a second."""
    import matplotlib.pyplot as plt

    figure, (heard, lines) = plt.subplots(
        2, 1, figsize=(COLUMN, 3.2), sharex=True, height_ratios=(1, 1.2)
    )
    extent = (0.0, found.duration_s, 0.0, float(found.mel.shape[1]))
    heard.imshow(found.mel.T, origin="lower", aspect="auto", extent=extent, cmap=HEAT)
    heard.set_ylabel("mel band")
    heard.set_title(f"{found.text}\nscore {found.score:.3f}, {found.rest:.3f} of it without a time")
    for stage, values in sorted(found.stages.items()):
        _steps(lines, values, found.duration_s, stage_colour(stage), f"stage {stage}", 0.8)
    _steps(lines, found.total, found.duration_s, "black", "sum", 1.4)
    lines.axhline(0, color="black", linewidth=0.4)
    lines.set_xlabel("seconds")
    lines.set_ylabel("contribution a second")
    lines.legend(ncols=3, loc="best")
    return figure


def _steps(ax, values, duration_s: float, colour: str, label: str, width: float) -> None:  # type: ignore[no-untyped-def]
    edges = np.linspace(0, duration_s, len(values) + 1)
    rate = values / (duration_s / len(values))
    ax.stairs(rate, edges, baseline=None, color=colour, label=label, linewidth=width)


def save_time_map(found: TimeMap, folder: Path) -> list[Path]:
    """Picture and table of one map, named after its text."""
    name = f"time_map_{slug(found.text)[:60]}"
    with styled():
        written = save(time_map_figure(found), folder / name)
    rows = [
        {"unit": unit, "stage": found.stage_of[unit], "second": float(at), "contribution": float(v)}
        for unit, values in found.parts.items()
        for at, v in zip(found.seconds_of(len(values)), values, strict=True)
    ]
    notes = (f"score {found.score:.6f}, of it {found.rest:.6f} without a time",)
    return [*written, write_csv(folder / f"{name}.csv", from_rows(name, rows, found.text, notes))]
