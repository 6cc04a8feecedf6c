"""From a store to every table: the whole analysis in one call, each part on its own feet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from residual_audio.analysis.aggregate import block_table, stage_table
from residual_audio.analysis.attention_tables import attention_tables
from residual_audio.analysis.description import describe_heads, top_clips
from residual_audio.analysis.head_measures import (
    HeadMeasures,
    local_table,
    measure_heads,
    measure_units,
    spectra_table,
)
from residual_audio.analysis.head_statistics import head_statistics
from residual_audio.analysis.intervals import dimension_curves, stage_intervals
from residual_audio.analysis.pooling import pooling_table
from residual_audio.analysis.result import Analysis
from residual_audio.analysis.separability_tables import separability_tables
from residual_audio.analysis.similarity_tables import fingerprint_table, head_similarity
from residual_audio.analysis.source import Source
from residual_audio.errors import InputError
from residual_audio.table import Table

PARTS = {
    "projected": "dimension after W_O",
    "tokens": "spectra over tokens",
    "kernel": "kernel PCA and kernel dimension",
    "units": "blocks, stages and embeddings",
    "similarity": "spectra, subspaces and CKA between heads",
    "separability": "Fisher, probes, silhouettes, activation by class",
    "attention": "attention maps",
    "pooling": "what mean pooling discards",
    "clips": "clips at the ends of leading components",
    "words": "words for leading directions",
    "curves": "estimates against the number of clips",
    "intervals": "bootstrap intervals of stage means",
}
"""What can be asked for besides the dimension of raw heads, which is always measured."""


@dataclass(frozen=True)
class Options:
    """What to analyse."""

    parts: frozenset[str] = frozenset(PARTS)
    units: tuple[str, ...] = ("heads", "blocks", "stages")
    seed: int = 0
    n_resamples: int = 200

    @classmethod
    def of(
        cls,
        metrics: Iterable[str] = ("all",),
        units: Iterable[str] = ("heads", "blocks", "stages"),
        labels: bool = True,
        seed: int = 0,
    ) -> Options:
        """From names, as the command line gives them; unknown ones are refused."""
        wanted, kinds = set(metrics), tuple(units)
        unknown = sorted(wanted - set(PARTS) - {"all", "dimension"})
        if unknown:
            raise InputError(
                f"unknown metric {', '.join(map(repr, unknown))}: choose among all, dimension, "
                f"{', '.join(PARTS)}"
            )
        strange = sorted(set(kinds) - {"heads", "blocks", "stages"})
        if strange:
            raise InputError(f"unknown unit '{strange[0]}': choose among heads, blocks, stages")
        parts = set(PARTS) if "all" in wanted else wanted & set(PARTS)
        if not labels:
            parts.discard("separability")
        if set(kinds) == {"heads"} or not kinds:
            parts.discard("units")
        return cls(frozenset(parts), kinds, seed)


def analyse(
    store: Source, options: Options | None = None, step: Callable[[str], None] = lambda part: None
) -> Analysis:
    """Everything a store can tell without its model. `step` is called before each part."""
    options = options or Options()
    if not any(store.has(f"heads/{site}") for site in store.attention_sites):
        raise InputError("the store has no heads: extract with --capture heads")
    step("dimension")
    measures = measure_heads(
        store,
        projected="projected" in options.parts,
        tokens="tokens" in options.parts,
        kernel="kernel" in options.parts,
        seed=options.seed,
    )
    heads = measures.table
    tables = {"heads": heads, "blocks": block_table(heads), "stages": stage_table(heads)}
    tables["spectra"] = spectra_table(measures)
    tables["local_dimension"] = local_table(store, measures)
    statistics = head_statistics(heads)
    statistics["n_clips"] = len(store.clips)
    skipped: dict[str, str] = {}
    if "tokens" in options.parts and "token" not in measures.spectra:
        skipped["tokens"] = "moments over tokens were not captured (--capture …,moments)"
    for part, work in _parts(store, options, measures, tables, statistics).items():
        if part in options.parts:
            step(part)
            try:
                work()
            except InputError as error:  # not captured, no labels …; a damaged store is an error
                skipped[part] = str(error)
    return Analysis(tables, statistics, skipped)


def _parts(
    store: Source,
    options: Options,
    measures: HeadMeasures,
    tables: dict[str, Table],
    statistics: dict[str, Any],
) -> dict[str, Callable[[], None]]:
    """Part → what it adds to the tables and statistics."""
    seed = options.seed

    def units() -> None:
        kinds = tuple(kind for kind in options.units if kind != "heads")
        found = measure_units(store, kinds, seed)
        if found is None:
            raise InputError("neither blocks nor stages were captured")
        tables["units"] = found

    def similarity() -> None:
        tables["similarity"], statistics["similarity"] = head_similarity(store, measures)
        tables["fingerprints"] = fingerprint_table(measures, seed)

    def separability() -> None:
        tables["fisher"], tables["class_activation"] = separability_tables(store, seed=seed)

    def attention() -> None:
        tables.update(attention_tables(store, seed))

    def pooling() -> None:
        tables["pooling"] = pooling_table(store)

    def clips() -> None:
        tables["top_clips"] = top_clips(store)

    def words() -> None:
        tables["descriptions"] = describe_heads(store, seed=seed)

    def curves() -> None:
        tables["dimension_vs_n"] = dimension_curves(store, seed=seed)

    def intervals() -> None:
        ids, groups = store.clips["id"], store.clips["group"]
        names = [str(i if g is None else g) for i, g in zip(ids, groups, strict=True)]
        found = stage_intervals(
            store, measures.log_ratio, n_resamples=options.n_resamples, seed=seed, groups=names
        )
        statistics["stage_intervals"] = found
        tables["stages"] = with_intervals(tables["stages"], found)

    return {
        "units": units,
        "similarity": similarity,
        "separability": separability,
        "attention": attention,
        "pooling": pooling,
        "clips": clips,
        "words": words,
        "curves": curves,
        "intervals": intervals,
    }


def with_intervals(stages: Table, intervals: dict[str, dict[str, list[float]]]) -> Table:
    """The stage table with `<metric>_low` and `<metric>_high` beside each mean."""
    columns: dict[str, Any] = {}
    missing = [float("nan")] * 2
    for name, values in stages.columns.items():
        columns[name] = values
        metric = name.removesuffix("_std")
        if name.endswith("_std") and metric in intervals:
            ends = [intervals[metric].get(f"s{s}", missing) for s in stages["stage"].tolist()]
            columns[f"{metric}_low"] = np.array([low for low, _ in ends])
            columns[f"{metric}_high"] = np.array([high for _, high in ends])
    note = "low, high: 95% bootstrap interval over clips (whole groups)"
    return Table(stages.name, columns, stages.caption, (*stages.notes, note))
