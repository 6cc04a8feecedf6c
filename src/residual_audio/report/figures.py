"""Every figure of the analysis, drawn from `tables/` alone: no store, no weights.

Adding a figure is adding one function `tables -> Figure` and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.errors import InputError
from residual_audio.report import figures_attention as below
from residual_audio.report import figures_classes as classes
from residual_audio.report import figures_heads as heads
from residual_audio.report import figures_interventions as interventions
from residual_audio.report import figures_similarity as alike
from residual_audio.report import figures_stages as stages
from residual_audio.report import figures_training as training
from residual_audio.report.inputs import MissingTable, Tables
from residual_audio.report.style import save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, tuple[Callable[[Tables], Figure], str]] = {
    "head_panels": (heads.head_panels, "Eight measures of every head, before W_O."),
    "head_panels_projected": (heads.projected_panels, "The same measures after W_O."),
    "block_heatmap": (
        stages.block_heatmap,
        "Linear (L) and nonlinear (N) dimension, their ratio, and the share of the first "
        "component, by block.",
    ),
    "progression": (stages.progression, "Dimension by block, mean ± standard deviation."),
    "pc1_dominance": (heads.pc1_dominance, "Share of the first component of every head."),
    "boxplots": (stages.boxplots, "Four measures by stage."),
    "spectral_fingerprints": (alike.spectral_fingerprints, "Eigenspectra of all heads."),
    "entropy_vs_dimension": (
        heads.entropy_against_dimension,
        "Spectral entropy against linear dimension.",
    ),
    "head_similarity": (alike.similarity_matrix, "Likeness of eigenspectra, in Ward order."),
    "head_cka": (alike.cka_matrix, "What heads say about clips: linear CKA."),
    "head_subspaces": (alike.subspace_matrix, "Overlap of the directions heads write."),
    "fingerprint_map": (alike.fingerprint_map, "Heads laid out by their eigenspectra."),
    "class_activation": (classes.class_activation, "Which classes move which heads."),
    "fisher": (classes.fisher_discriminability, "How well single heads separate the classes."),
    "attention_maps": (
        below.attention_participation,
        "Participation ratio of attention maps by head and stage, and what the number of maps "
        "does to it.",
    ),
    "pooling": (below.pooling_shares, "What mean pooling keeps and discards."),
    "streams": (below.streams, "Dimension of streams, attention and MLP outputs."),
    "dimension_vs_clips": (
        stages.dimension_against_clips,
        "Estimates against the number of clips.",
    ),
    "dimension_vs_scale": (
        stages.dimension_against_scale,
        "Nonlinear dimension against the scale it is measured at.",
    ),
    **interventions.FIGURES,
    **training.FIGURES,
}
"""Name (also the file's) → function and caption."""


def draw(name: str, run: Path) -> list[Path]:
    """Draw one figure; an error says which table it lacks."""
    if name not in FIGURES:
        raise InputError(f"no figure '{name}'; there are: {', '.join(FIGURES)}")
    with styled():
        figure = FIGURES[name][0](Tables(run))
        return save(figure, run / "figures" / name)


def draw_all(run: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Draw every figure whose tables the run has; returns the files (PNG and PDF)."""
    tables = Tables(run)
    written: list[Path] = []
    for name in FIGURES if names is None else names:
        with styled():
            try:
                figure = FIGURES[name][0](tables)
            except MissingTable:
                continue
            written += save(figure, run / "figures" / name)
    return written


def missing(run: Path) -> dict[str, str]:
    """Figures that this run cannot have → why."""
    tables, out = Tables(run), {}
    for name, (function, _) in FIGURES.items():
        with styled():
            try:
                function(tables)
            except MissingTable as error:
                out[name] = str(error)
    return out
