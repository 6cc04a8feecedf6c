"""From a store to every table: the whole analysis in one call, each part on its own feet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from residual_audio.analysis.aggregate import block_table, stage_table
from residual_audio.analysis.columns import join_columns
from residual_audio.analysis.head_measures import local_table, measure_heads, spectra_table
from residual_audio.analysis.head_statistics import head_statistics
from residual_audio.analysis.parts import PARTS, Found, Material
from residual_audio.analysis.result import Analysis
from residual_audio.analysis.source import Source
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table

BY_DEFAULT = frozenset(name for name, part in PARTS.items() if part.by_default)


@dataclass(frozen=True)
class Options:
    """What to analyse."""

    parts: frozenset[str] = BY_DEFAULT
    units: tuple[str, ...] = ("heads", "blocks", "stages")
    seed: int = 0
    n_resamples: int = 200
    umap: bool = True
    """Heads are laid out by UMAP where it is installed; compiling it takes about ten seconds."""

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
        parts = wanted & set(PARTS) | (BY_DEFAULT if "all" in wanted else frozenset())
        if not labels:
            parts.discard("separability")
        if set(kinds) == {"heads"} or not kinds:
            parts.discard("units")
        return cls(frozenset(parts), kinds, seed)


def analyse(store: Source, options: Options | None = None, progress: Progress = SILENT) -> Analysis:
    """Everything a store can tell without its model."""
    options = options or Options()
    if not any(store.has(f"heads/{site}") for site in store.attention_sites):
        raise InputError("the store has no heads: extract with --capture heads")
    measures = measure_heads(
        store,
        projected="projected" in options.parts,
        tokens="tokens" in options.parts,
        kernel="kernel" in options.parts,
        seed=options.seed,
        progress=progress,
    )
    skipped: dict[str, str] = {}
    if "tokens" in options.parts and "token" not in measures.spectra:
        skipped["tokens"] = "moments over tokens were not captured (--capture …,moments)"
    material = Material(
        store, measures, options.units, options.seed, options.n_resamples, options.umap, progress
    )
    found = []
    for part in PARTS.values():
        if part.name in options.parts and part.make is not None:
            try:
                found.append(part.make(material))
            except InputError as error:  # not captured, no labels …; a damaged store is an error
                skipped[part.name] = str(error)
    return _assemble(material, found, skipped)


def _assemble(material: Material, parts: list[Found], skipped: dict[str, str]) -> Analysis:
    """One set of tables: heads with all that is known of each, then their means, then the rest."""
    made = {table.name: table for part in parts for table in part.tables}
    found: dict[str, Any] = {key: value for part in parts for key, value in part.statistics.items()}
    heads = material.measures.table
    if "fisher" in made:
        heads = join_columns(heads, made["fisher"])
    stages = stage_table(heads)
    if "stage_intervals" in found:
        stages = with_intervals(stages, found["stage_intervals"])
    tables = {"heads": heads, "blocks": block_table(heads), "stages": stages}
    tables["spectra"] = spectra_table(material.measures)
    tables["local_dimension"] = local_table(material.store, material.measures)
    statistics = head_statistics(heads) | _counts(material.store) | found
    return Analysis(tables | made, statistics, skipped)


def _counts(store: Source) -> dict[str, int]:
    """Clips of the store and, of a large one, those of the declared sample."""
    n_sampled = len(store.clips)
    counts = {"n_clips": store.n_all}
    return counts if n_sampled == store.n_all else {**counts, "n_sampled": n_sampled}


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
    note = "low, high: 95% interval over clips, from half-samples of whole groups"
    return Table(stages.name, columns, stages.caption, (*stages.notes, note))
