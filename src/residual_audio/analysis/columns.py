"""The metrics a per-head table may hold: their names in files and in print."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One number a head."""

    name: str
    """Column name, as in published per-head tables."""
    label: str
    """For figures and Markdown."""
    latex: str
    decimals: int
    """In a table of means."""


METRICS = (
    Metric("pca_90", "PCA 90%", r"$d_{\mathrm{PCA}_{90}}$", 1),
    Metric("pca_95", "PCA 95%", r"$d_{\mathrm{PCA}_{95}}$", 1),
    Metric("pca_99", "PCA 99%", r"$d_{\mathrm{PCA}_{99}}$", 1),
    Metric("evr_pc1", "EVR (PC1)", r"EVR(PC1)", 3),
    Metric("evr_pc2", "EVR (PC2)", r"EVR(PC2)", 3),
    Metric("pr", "Participation ratio", "PR", 1),
    Metric("shannon_entropy", "Spectral entropy", "$H$", 2),
    Metric("eff_rank", "Effective rank", "EffRank", 1),
    Metric("twonn", "TwoNN", "TwoNN", 1),
    Metric("mle", "MLE", "MLE", 1),
    Metric("ln_ratio", "L/N", "L/N", 2),
)

BY_NAME = {metric.name: metric for metric in METRICS}

STAGE_TABLE = ("pca_90", "pca_99", "twonn", "pr", "eff_rank", "evr_pc1")
"""Columns of the stage table that papers print."""

PREFIXES = {
    "": "raw head outputs, before W_O",
    "projected_": "after W_O, by the d_head algebra",
    "token_": "over tokens instead of clip means",
}
"""Column prefixes and what they are measured on."""


def label(name: str) -> str:
    """Readable name of a column."""
    for prefix in PREFIXES:
        if prefix and name.startswith(prefix):
            return f"{label(name[len(prefix) :])} ({prefix.rstrip('_')})"
    return BY_NAME[name].label if name in BY_NAME else name.replace("_", " ")
