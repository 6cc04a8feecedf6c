"""Every number a unit is measured by, declared once: what it is called and what it is made from.

Tables, statistics, printed tables and figures find estimators here, by what they declare. Adding
one is adding a function and a line in `ESTIMATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from residual_audio.metrics import dimension, separability, spectra
from residual_audio.metrics.dimension import Estimate
from residual_audio.metrics.neighbours import Distances
from residual_audio.metrics.separability import LabelledUnits
from residual_audio.metrics.validate import Array

Quantity = Literal["dimension", "share", "entropy", "ratio", "silhouette", "accuracy"]
OfSpectrum = Callable[[Array], Array]
OfNeighbours = Callable[[Distances], Estimate]
OfColumns = Callable[..., Array]
OfLabels = Callable[[LabelledUnits], Array | None]


@dataclass(frozen=True)
class Estimator:
    """One number a unit."""

    name: str
    """Column name, as in published per-head tables."""
    label: str
    """For figures and Markdown."""
    quantity: Quantity
    """What is counted: only like quantities share an axis."""
    latex: str = ""
    """For printed tables; the label where there is none."""
    decimals: int = 1
    """In a table of means."""
    better: Literal["higher", "lower", "neither"] = "neither"
    """Which end a reader looks for; a dimension is neither good nor bad by itself."""
    spectrum: OfSpectrum | None = None
    """Needs eigenvalues [unit, d] → [unit]."""
    neighbours: OfNeighbours | None = None
    """Needs one neighbour search → value, error and reason a unit."""
    n_neighbours: int = 2
    """How many neighbours the search must hold."""
    error: bool = True
    """Whether its standard error is a column beside it (`<name>_se`)."""
    columns: OfColumns | None = None
    """Needs other columns, those named in `reads` → [unit]."""
    reads: tuple[str, ...] = ()
    labels: OfLabels | None = None
    """Needs clips with classes → [unit]; None where these clips do not allow it."""
    summary: bool = True
    """Averaged over blocks and stages, tested and correlated; else only a column of unit tables."""
    panel: bool = True
    """Drawn where figures show one panel an estimator."""
    printed: int = 0
    """Its place in the stage table that papers print; 0 for none."""

    @property
    def needs(self) -> Literal["spectrum", "neighbours", "columns", "labels"]:
        """What it is made from."""
        if self.spectrum is not None:
            return "spectrum"
        if self.neighbours is not None:
            return "neighbours"
        return "labels" if self.labels is not None else "columns"

    @property
    def heading(self) -> str:
        """Its name in LaTeX."""
        return self.latex or self.label


def _pca(percent: int, panel: bool = True, printed: int = 0) -> Estimator:
    count = partial(spectra.pca_dimension, share=percent / 100)
    latex = rf"$d_{{\mathrm{{PCA}}_{{{percent}}}}}$"
    return Estimator(
        f"pca_{percent}", f"PCA {percent}%", "dimension", latex, spectrum=count, panel=panel,
        printed=printed,
    )  # fmt: skip


def _gride(order: int) -> Estimator:
    """GRIDE at one scale; `dimension_vs_scale` draws them together."""
    return Estimator(
        f"gride_{order}", f"GRIDE {order}→{2 * order}", "dimension", summary=False, panel=False,
        neighbours=partial(dimension.gride, order=order), n_neighbours=2 * order,
    )  # fmt: skip


_LIKELIHOOD = partial(dimension.two_nn, method="mle", discard=0.0)
_ARITHMETIC = partial(dimension.mle, combine="arithmetic")

ESTIMATORS: tuple[Estimator, ...] = (
    _pca(90, printed=1),
    _pca(95, panel=False),
    _pca(99, printed=2),
    Estimator("evr_pc1", "EVR (PC1)", "share", "EVR(PC1)", 3, spectrum=spectra.first_share,
              printed=6),
    Estimator("evr_pc2", "EVR (PC2)", "share", "EVR(PC2)", 3, spectrum=spectra.second_share,
              panel=False),
    Estimator("pr", "Participation ratio", "dimension", "PR", spectrum=spectra.participation_ratio,
              printed=4),
    Estimator("shannon_entropy", "Spectral entropy", "entropy", "$H$", 2,
              spectrum=spectra.spectral_entropy, panel=False),
    Estimator("eff_rank", "Effective rank", "dimension", "EffRank",
              spectrum=spectra.effective_rank, printed=5),
    Estimator("twonn", "TwoNN", "dimension", neighbours=dimension.two_nn, printed=3),
    Estimator("twonn_mle", "TwoNN (likelihood)", "dimension", neighbours=_LIKELIHOOD,
              summary=False, panel=False),
    Estimator("mle", "MLE", "dimension", neighbours=dimension.mle),
    Estimator("mle_arithmetic", "MLE (arithmetic)", "dimension", neighbours=_ARITHMETIC,
              error=False, summary=False, panel=False),
    Estimator("mom", "Method of moments", "dimension", "MOM",
              neighbours=dimension.method_of_moments),
    *(_gride(order) for order in (1, 2, 4, 8, 16)),
    Estimator("ln_ratio", "L/N", "ratio", decimals=2, columns=np.divide, reads=("pca_99", "twonn")),
    Estimator("fisher_trace", "Fisher ratio", "ratio", r"$\mathrm{tr}\,S_B/\mathrm{tr}\,S_W$", 3,
              "higher", labels=separability.fisher_trace),
    Estimator("fisher_mean_ratio", "Fisher ratio by dimension", "ratio", decimals=3,
              better="higher", labels=separability.fisher_mean_ratio, panel=False),
    Estimator("silhouette", "Silhouette", "silhouette", decimals=3, better="higher",
              labels=separability.sampled_silhouette),
    Estimator("probe_accuracy", "Linear probe", "accuracy", decimals=3, better="higher",
              labels=separability.probe_accuracy),
    Estimator("probe_control", "Linear probe, control task", "accuracy", decimals=3,
              labels=separability.probe_control, summary=False, panel=False),
)  # fmt: skip
"""In the order of columns and panels."""

BY_NAME: Mapping[str, Estimator] = {estimator.name: estimator for estimator in ESTIMATORS}
SUMMARY = tuple(estimator for estimator in ESTIMATORS if estimator.summary)
PRINTED = tuple(sorted((e for e in SUMMARY if e.printed), key=lambda e: e.printed))
DIMENSIONS = tuple(e for e in SUMMARY if e.panel and e.quantity == "dimension")
"""Dimensions that figures draw: by block, by stage, against the number of clips."""


def of_spectrum(eigenvalues: Array) -> dict[str, Array]:
    """Every estimate that eigenvalues [unit, d] allow: column → [unit]."""
    return {e.name: e.spectrum(eigenvalues) for e in ESTIMATORS if e.spectrum is not None}


def of_neighbours(distances: Distances) -> dict[str, Array]:
    """Every estimate that a neighbour search allows, with standard errors: column → [unit]."""
    columns: dict[str, Array] = {}
    for estimator in ESTIMATORS:
        if estimator.neighbours is None or estimator.n_neighbours > distances.k:
            continue
        found = estimator.neighbours(distances)
        columns[estimator.name] = found.value
        if estimator.error:
            columns[f"{estimator.name}_se"] = found.error
    return columns


def of_columns(columns: Mapping[str, Array], prefix: str = "") -> dict[str, Array]:
    """Every estimate that follows from other columns which are there, all with this prefix."""
    out: dict[str, Array] = {}
    for estimator in ESTIMATORS:
        names = [prefix + name for name in estimator.reads]
        if estimator.columns is not None and all(name in columns for name in names):
            with np.errstate(divide="ignore", invalid="ignore"):
                values = estimator.columns(*(columns[name].astype(float) for name in names))
            out[prefix + estimator.name] = values
    return out


def of_labels(units: LabelledUnits) -> dict[str, Array]:
    """Every estimate that classes allow, as far as these clips do: column → [unit]."""
    found = {e.name: e.labels(units) for e in ESTIMATORS if e.labels is not None}
    return {name: values for name, values in found.items() if values is not None}
