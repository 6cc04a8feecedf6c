"""The parts of an analysis: each makes its tables from a store, or says why it cannot.

Adding one is adding a function here and a line in `PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from residual_audio.analysis.attention_tables import attention_tables
from residual_audio.analysis.curved_tables import curved_table
from residual_audio.analysis.description import describe_heads, top_clips
from residual_audio.analysis.head_measures import HeadMeasures, measure_units
from residual_audio.analysis.intervals import dimension_curves, stage_intervals
from residual_audio.analysis.pooling import pooling_table
from residual_audio.analysis.separability_tables import separability_tables
from residual_audio.analysis.similarity_tables import fingerprint_table, head_similarity
from residual_audio.analysis.source import Source, clip_groups
from residual_audio.errors import InputError
from residual_audio.progress import Progress
from residual_audio.table import Table


@dataclass(frozen=True)
class Material:
    """What every part may read."""

    store: Source
    measures: HeadMeasures
    units: tuple[str, ...]
    seed: int
    n_resamples: int
    umap: bool
    progress: Progress


@dataclass(frozen=True)
class Found:
    """What a part adds to an analysis."""

    tables: tuple[Table, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Something that can be asked for besides the dimension of raw heads."""

    name: str
    label: str
    make: Callable[[Material], Found] | None = None
    """None where it is measured together with the heads."""
    by_default: bool = True
    """Whether `all` means it too; slow ones are asked for by name."""


def _units(on: Material) -> Found:
    kinds = tuple(kind for kind in on.units if kind != "heads")
    found = measure_units(on.store, kinds, on.seed, on.progress)
    if found is None:
        raise InputError("neither blocks nor stages were captured")
    return Found((found,))


def _similarity(on: Material) -> Found:
    table, statistics = head_similarity(on.store, on.measures, on.progress)
    return Found(
        (table, fingerprint_table(on.measures, on.seed, on.umap)), {"similarity": statistics}
    )


def _separability(on: Material) -> Found:
    return Found(separability_tables(on.store, seed=on.seed, progress=on.progress))


def _attention(on: Material) -> Found:
    return Found(tuple(attention_tables(on.store, on.seed, on.progress).values()))


def _pooling(on: Material) -> Found:
    return Found((pooling_table(on.store, on.progress),))


def _clips(on: Material) -> Found:
    return Found((top_clips(on.store, progress=on.progress),))


def _words(on: Material) -> Found:
    return Found((describe_heads(on.store, seed=on.seed, progress=on.progress),))


def _curves(on: Material) -> Found:
    return Found((dimension_curves(on.store, seed=on.seed, progress=on.progress),))


def _curved(on: Material) -> Found:
    return Found((curved_table(on.store, seed=on.seed, progress=on.progress),))


def _intervals(on: Material) -> Found:
    found = stage_intervals(
        on.store,
        on.measures.log_ratio,
        n_resamples=on.n_resamples,
        seed=on.seed,
        groups=clip_groups(on.store),
        progress=on.progress,
    )
    return Found(statistics={"stage_intervals": found})


PARTS: Mapping[str, Part] = {
    part.name: part
    for part in (
        Part("projected", "dimension after W_O"),
        Part("tokens", "spectra over tokens"),
        Part("kernel", "kernel PCA and kernel dimension"),
        Part("units", "blocks, stages and embeddings", _units),
        Part("similarity", "spectra, subspaces and CKA between heads", _similarity),
        Part("separability", "Fisher, probes, silhouettes, activation by class", _separability),
        Part("attention", "attention maps", _attention),
        Part("pooling", "what mean pooling discards", _pooling),
        Part("clips", "clips at the ends of leading components", _clips),
        Part("words", "words for leading directions", _words),
        Part("curves", "estimates against the number of clips", _curves),
        Part("curved", "Isomap and autoencoder of a few heads", _curved, by_default=False),
        Part("intervals", "intervals of stage means over clips", _intervals),
    )
}
"""What can be asked for besides the dimension of raw heads, which is always measured."""
