"""Every figure of a run, drawn from `tables/` alone: no store, no weights.

Adding a figure is adding one file with a function `tables -> Figure` and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from residual_audio.engine import Where, open_engine
from residual_audio.engine.local import get_ready
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.report import figures_ablation as ablation
from residual_audio.report import figures_adaptation as adapted
from residual_audio.report import figures_attention as below
from residual_audio.report import figures_classes as classes
from residual_audio.report import figures_heads as heads
from residual_audio.report import figures_patching as patching
from residual_audio.report import figures_protocols as protocols
from residual_audio.report import figures_scree as spectra
from residual_audio.report import figures_similarity as alike
from residual_audio.report import figures_stages as stages
from residual_audio.report import figures_training as training
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import FORMATS, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One figure: its file, where it stands on the page, and what it shows."""

    name: str
    """Also the stem of its files."""
    section: str
    """Id of the page's section it belongs to (`sections.py`)."""
    draw: Callable[[Tables], Figure]
    """Raises `MissingTable` where a run lacks what it is drawn from."""
    caption: str


DRAWINGS: tuple[Drawing, ...] = (
    Drawing("adaptation", "residual", adapted.adaptation,
            "Adaptations on the same grouped folds, and their paired gains."),
    Drawing("few_shot", "residual", adapted.few_shot, "Adaptation from few clips a class."),
    Drawing("front", "residual", adapted.front, "What is gained here, and lost elsewhere."),
    Drawing("trade", "residual", adapted.trade,
            "Bounded gains: accuracy, heads that move, and how alike the edits of folds are."),
    Drawing("retention", "residual", adapted.retention, "How many components does a head need?"),
    Drawing("pruning", "residual", adapted.pruning,
            "Heads taken out of the weights: accuracy, and the time it saves."),
    Drawing("gains_by_head", "residual", adapted.gains_by_head, "Which heads the gains moved."),
    Drawing("sweep", "residual", adapted.sweep_parallel,
            "Settings and held-out accuracy of every trial."),
    Drawing("protocol_paolini", "residual", protocols.paolini,
            "A published protocol (one λ a stage), as published and corrected."),
    Drawing("protocol_arcioni", "residual", protocols.arcioni,
            "A published protocol (one λ a head), as published and corrected."),
    Drawing("block_ablation", "ablation", ablation.block_ablation,
            "Accuracy lost without each block's attention; against entropy; heads by stage."),
    Drawing("fisher_vs_ablation", "ablation", ablation.fisher_against_ablation,
            "Cheap metrics of every head against what its removal costs."),
    Drawing("ablation_predictors", "ablation", ablation.ablation_predictors,
            "Which cheap metric predicts importance?"),
    Drawing("removal_curves", "ablation", ablation.removal_curves,
            "Accuracy against heads removed, least important first."),
    Drawing("patching_heads", "ablation", patching.patching_heads,
            "Share of the gap between two clips that each head carries; dots: q ≤ 0.05."),
    Drawing("patching_sets", "ablation", patching.patching_sets,
            "Share of the gap that sets of units carry; chosen on other pairs than shown."),
    Drawing("patching_time", "ablation", patching.patching_time,
            "Share of the gap that each time window carries."),
    Drawing("head_panels", "heads", heads.head_panels, "Measures of every head, before W_O."),
    Drawing("block_heatmap", "heads", stages.block_heatmap,
            "Linear (L) and nonlinear (N) dimension, their ratio, and the share of the first "
            "component, by block."),
    Drawing("progression", "heads", stages.progression,
            "Dimension by block, mean ± standard deviation."),
    Drawing("boxplots", "heads", stages.boxplots,
            "Dimensions by stage, or by block where there is one stage."),
    Drawing("scree", "heads", spectra.scree,
            "Eigenvalue spectra of heads by stage, and the share that the first components keep."),
    Drawing("pc1_dominance", "heads", heads.pc1_dominance,
            "Share of the first component of every head."),
    Drawing("entropy_vs_dimension", "heads", heads.entropy_against_dimension,
            "Spectral entropy against linear dimension."),
    Drawing("head_panels_projected", "heads", heads.projected_panels,
            "The same measures after W_O."),
    Drawing("streams", "heads", below.streams,
            "Dimension of streams, attention and MLP outputs."),
    Drawing("dimension_vs_clips", "heads", stages.dimension_against_clips,
            "Estimates against the number of clips."),
    Drawing("dimension_vs_scale", "heads", stages.dimension_against_scale,
            "Nonlinear dimension against the scale it is measured at."),
    Drawing("class_activation", "classes", classes.class_activation,
            "Which classes move which heads."),
    Drawing("fisher", "classes", classes.fisher_discriminability,
            "How well single heads separate the classes."),
    Drawing("spectral_fingerprints", "alike", alike.spectral_fingerprints,
            "Eigenspectra of all heads."),
    Drawing("head_similarity", "alike", alike.similarity_matrix,
            "Likeness of eigenspectra, in Ward order."),
    Drawing("head_cka", "alike", alike.cka_matrix, "What heads say about clips: linear CKA."),
    Drawing("head_subspaces", "alike", alike.subspace_matrix,
            "Overlap of the directions heads write."),
    Drawing("fingerprint_map", "alike", alike.fingerprint_map,
            "Heads laid out by their eigenspectra."),
    Drawing("attention_maps", "attention", below.attention_participation,
            "Participation ratio of attention maps by head and stage, and what the number of maps "
            "does to it."),
    Drawing("pooling", "attention", below.pooling_shares, "What mean pooling keeps and discards."),
    Drawing("training", "training", training.training,
            "Dimension of heads by stage, RankMe of both sides, modality gap and accuracy on the "
            "probe set, while the model is trained."),
)  # fmt: skip
"""In the order of the page."""

FIGURES = {drawing.name: drawing for drawing in DRAWINGS}


def get_ready_to_draw() -> None:
    """Have what drawing needs loaded by the time that it begins, if it will be in processes."""
    get_ready([__name__, "matplotlib.pyplot", "matplotlib.backends.backend_agg"])


def draw_all(
    run: Path,
    names: Iterable[str] | None = None,
    *,
    formats: Iterable[str] = FORMATS,
    processes: int = 1,
    progress: Progress = SILENT,
) -> list[Path]:
    """Draw these figures (all), as far as the run has their tables; the files, in order."""
    chosen = list(FIGURES if names is None else names)
    unknown = [name for name in chosen if name not in FIGURES]
    if unknown:
        raise InputError(f"no figure '{unknown[0]}'; there are: {', '.join(FIGURES)}")
    Tables(run)  # a run without tables is an error before any process is started
    progress.step("drawing", len(chosen), "figures")
    written: dict[int, list[Path]] = {}
    draw = partial(_draw, run, tuple(formats))
    with open_engine(Where(processes=processes, ready=True)) as engine:
        for done in engine.run(chosen, partial(Tables, run), draw):
            if done.error is not None:
                raise done.error
            written[done.number] = done.result
            progress.advance()
    return [path for number in range(len(chosen)) for path in written[number]]


def _draw(run: Path, formats: Sequence[str], tables: Tables, name: str) -> list[Path]:
    with styled():
        try:
            figure = FIGURES[name].draw(tables)
        except MissingTable:
            return []
        return save(figure, run / "figures" / name, formats)
