"""How dimension, geometry and accuracy emerge while a model is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residual_audio.errors import InputError
from residual_audio.files import parse_json
from residual_audio.report.run_tables import Tables
from residual_audio.report.style import PAGE, series_colour, stage_colour
from residual_audio.table import Table, from_rows
from residual_audio.types import Head

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRACKING = "audio/tracking.jsonl"
DIMENSIONS = ("pca_90", "pca_99", "pr")
NONLINEAR = ("twonn", "mle")
"""Absent from older logs."""
SCALARS = ("modality_gap", "rankme_audio", "rankme_text", "matched_cosine", "probe_accuracy")


def training_table(run: Path) -> Table | None:
    """One row a tracked step and stage, from what `train` wrote; None where it wrote nothing."""
    path = run / TRACKING
    if not path.is_file():
        return None
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = parse_json(line)
            stages = np.array([Head.parse(name).stage for name in record["heads"]])
            for stage in np.unique(stages):
                row = {"step": record["step"], "stage": int(stage)}
                for name in DIMENSIONS:
                    row[name] = float(np.mean(np.asarray(record[name], float)[stages == stage]))
                for name in NONLINEAR:
                    known = np.asarray(record.get(name) or [np.nan] * len(stages), float)
                    row[name] = float(np.mean(known[stages == stage]))
                rows.append(row | {name: record.get(name, np.nan) for name in SCALARS})
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(f"line {number} of '{path}' is not a tracked step: {error}") from error
    return from_rows("training", rows, "Dimension and geometry while the model learns")


def training(tables: Tables) -> Figure:
    """Dimension by stage, effective use of the joint space, and gap and accuracy, by step."""
    import matplotlib.pyplot as plt

    table = tables.need("training", "step", "stage", *DIMENSIONS)
    figure, panels = plt.subplots(1, 4, figsize=(PAGE, 2.0), layout="constrained")
    stage = table["stage"].astype(int)
    for panel, (name, title) in zip(
        panels, (("pca_99", "PCA 99%"), ("pr", "Participation ratio")), strict=False
    ):
        for s in np.unique(stage):
            rows = stage == s
            panel.plot(
                table["step"][rows].astype(float),
                table[name][rows].astype(float),
                color=stage_colour(int(s)),
                marker="o",
                markersize=2.5,
                label=f"stage {s}",
            )
        panel.set_title(title)
    panels[0].legend(fontsize=6)
    first = stage == stage.min()
    step = table["step"][first].astype(float)
    for name, label in (("rankme_audio", "audio"), ("rankme_text", "text")):
        panels[2].plot(
            step, table[name][first].astype(float), marker="o", markersize=2.5, label=label
        )
    panels[2].set_title("RankMe")
    panels[2].legend(fontsize=6)
    for i, name in enumerate(("modality_gap", "matched_cosine", "probe_accuracy")):
        panels[3].plot(
            step,
            table[name][first].astype(float),
            color=series_colour(i),
            marker="o",
            markersize=2.5,
            label=name.replace("_", " "),
        )
    panels[3].set_title("Gap, cosine, accuracy")
    panels[3].legend(fontsize=6)
    for panel in panels:
        panel.set_xlabel("step")
        panel.set_ylim(bottom=0)
    return figure
