"""Figures under the file names of the README that described them first.

    residual-audio analyse RUN --names seeds

`panel_A` … `panel_H` are single panels; the others are our figures once more. Names of heads after
W_O, or in the joint space, begin with `postproj_`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.analysis.columns import label
from residual_audio.files import write_bytes
from residual_audio.report.run_tables import Tables
from residual_audio.report.style import COLUMN, save, stage_colour, stage_legend, styled
from residual_audio.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "panel_A": "pca_90",
    "panel_B": "pca_99",
    "panel_C": "twonn",
    "panel_D": "mle",
    "panel_E": "pr",
    "panel_F": "eff_rank",
    "panel_G": "evr_pc1",
    "panel_H": "ln_ratio",
}
"""Name there → column of the table of heads."""
SEED_NAMES = {
    "block_heatmap": "htsat_block_metrics",
    "spectral_fingerprints": "spectral_fingerprinting",
    "head_similarity": "head_similarity_matrix",
    "fingerprint_map": "head_clustering",
    "class_activation": "class_activation_heatmap",
    "fisher": "fisher_discriminability",
    "fisher_vs_ablation": "fisher_vs_ablation",
    "block_ablation": "task_importance_analysis",
}
"""Figure here → its name there."""
PREFIX = "postproj_"


def write_seed_names(run: Path, figures: Sequence[Path], *, raw: bool = True) -> list[Path]:
    """Single panels, and copies of these figures under their other names."""
    before = "" if raw else PREFIX
    written = []
    for path in figures:
        name = SEED_NAMES.get(path.stem)
        if name is not None and before + name != path.stem:
            other = path.with_name(f"{before}{name}{path.suffix}")
            written.append(write_bytes(other, path.read_bytes()))
    heads = Tables(run)["heads"]
    for name, metric in PANELS.items():
        if metric in heads:
            with styled():
                written += save(_panel(heads, metric), run / "figures" / f"{before}{name}")
    return written


def _panel(heads: Table, metric: str) -> Figure:
    """One metric of every head, in order of computation."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(COLUMN, 2.0))
    stages = heads["stage"].astype(int)
    for stage in sorted(set(stages.tolist())):
        place = (stages == stage).nonzero()[0]
        axes.scatter(place, heads[metric][place].astype(float), s=6, color=stage_colour(stage))
    axes.set_xlabel("head")
    axes.set_ylabel(label(metric))
    stage_legend(axes, sorted(set(stages.tolist())))
    return figure
