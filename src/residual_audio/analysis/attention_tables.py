"""Attention maps by head and by stage, with the sample they rest on and what its size does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from residual_audio.analysis.aggregate import mean_and_std
from residual_audio.analysis.source import Source
from residual_audio.engine.jobs import on_cores
from residual_audio.errors import InputError
from residual_audio.metrics.attention_maps import (
    dimension_against_sample,
    dimensions_within_windows,
    gram_spectra,
    map_dimensions,
    map_grams,
)
from residual_audio.metrics.estimators import of_spectrum
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import Site

SAMPLE_SIZES = (8, 16, 32, 64, 128, 256, 512)
STATISTICS = ("entropy", "distance", "distance_rows", "distance_cols")


def attention_tables(store: Source, seed: int = 0, progress: Progress = SILENT) -> dict[str, Table]:
    """`attention` (a row a head), `attention_stages`, `attention_sample` (dimension against n)."""
    sites = [s for s in store.attention_sites if store.has(f"attention/{s}/entropy")]
    if not sites:
        raise InputError("attention was not captured: extract with --capture …,attention")
    n_maps = _equal_number(store, sites)
    progress.step("analyse: attention", len(sites), "sites")

    def one(site: Site) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
        made = _one_site(store, site, n_maps, seed)
        progress.advance()
        return made

    found = on_cores(one, sites)
    rows = [row for part, _ in found for row in part]
    curves = [row for _, part in found for row in part]
    notes = (
        f"{n_maps} window maps a head, the number the site with fewest has; a dimension is at most "
        "one less, and grows with their number (attention_sample)",
        "_within: after taking out the mean map of each window, which in shifted blocks holds the "
        "border masks",
    )
    head_table = from_rows(
        "attention",
        rows,
        "Attention maps of every head: spread (entropy, nats), reach (distance, token steps) and "
        "dimension of the cloud of window maps.",
        notes,
    )
    tables = {"attention": head_table, "attention_stages": _stages(store, head_table)}
    averaged = _averaged(store, head_table)
    if averaged is not None:
        tables["attention_averaged"] = averaged
    if curves:
        caption = "Dimension of attention maps against the number of maps."
        tables["attention_sample"] = from_rows("attention_sample", curves, caption)
    return tables


def _maps(store: Source, site: Site) -> Array | None:
    name = f"attention/{site}/maps"
    return np.asarray(store.array(name)) if store.has(name) else None


def _one_site(
    store: Source, site: Site, n_maps: int, seed: int
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Rows of the site's heads, and of the site's mean dimension against the number of maps."""
    rng = np.random.default_rng([seed, site.stage, site.block])
    statistics = {
        name: np.asarray(store.array(f"attention/{site}/{name}"), dtype=np.float64)
        for name in STATISTICS
        if store.has(f"attention/{site}/{name}")
    }
    maps = _maps(store, site)
    grams = map_grams(maps) if maps is not None and len(maps) > 2 else None
    found: dict[str, Array] = {}
    curves: list[dict[str, object]] = []
    if grams is not None:
        chosen = np.sort(rng.permutation(len(grams[0]))[:n_maps])
        equal = grams[np.ix_(np.arange(len(grams)), chosen, chosen)]
        found = of_spectrum(gram_spectra(equal))
        if store.has(f"attention/{site}/maps_at"):
            windows = np.asarray(store.array(f"attention/{site}/maps_at"))[chosen, 1]
            within = dimensions_within_windows(equal, windows)
            found |= {f"{name}_within": within[name] for name in ("pr", "pca_99")}
        curves = [
            {"stage": site.stage, "block": site.block, "n_maps": n}
            | {name: mean_and_std(values)[0] for name, values in dimensions.items()}
            for n, dimensions in dimension_against_sample(grams, SAMPLE_SIZES, rng).items()
        ]
    rows = []
    for h, head in enumerate(site.heads):
        row: dict[str, object] = {
            "head_id": str(head),
            "stage": site.stage,
            "block": site.block,
            "head": h,
            "n_maps": 0 if grams is None else n_maps,
        }
        row |= {name: float(values[:, h].mean()) for name, values in statistics.items()}
        rows.append(row | {name: float(values[h]) for name, values in found.items()})
    return rows, curves


def _equal_number(store: Source, sites: Sequence[Site]) -> int:
    """Maps that every site has: their dimension can only be compared at equal numbers."""
    names = [f"attention/{site}/maps" for site in sites]
    counts = [
        len(store.array(f"{name}_at" if store.has(f"{name}_at") else name))
        for name in names
        if store.has(name)
    ]
    return min(counts, default=0)


def _stages(store: Source, heads: Table) -> Table:
    """Stage means over heads, and of maps averaged over the blocks of a stage, head by head."""
    rows = []
    for stage in sorted(set(heads["stage"].tolist())):
        part = heads.where(heads["stage"] == stage)
        row: dict[str, object] = {"stage": stage, "n_heads": len(part)}
        for name in ("pr", "pca_90", "pca_99", *STATISTICS):
            if name in part:
                row[f"{name}_mean"], row[f"{name}_std"], _ = mean_and_std(part[name])
        averaged = block_averages(store, stage)
        row |= {f"averaged_{name}": float(np.nanmean(v)) for name, v in averaged.items()}
        rows.append(row)
    note = (
        "averaged_: maps of one window averaged over the blocks of the stage first, which mixes "
        "shifted and unshifted windows"
    )
    return from_rows("attention_stages", rows, "Attention maps by stage.", (note,))


def _averaged(store: Source, heads: Table) -> Table | None:
    """One row a stage and head number: the dimension of its maps averaged over the blocks."""
    rows: list[dict[str, object]] = []
    for stage in sorted(set(heads["stage"].tolist())):
        found = block_averages(store, stage)
        for h in range(len(next(iter(found.values()), ()))):
            own = {name: float(values[h]) for name, values in found.items()}
            rows.append({"stage": stage, "head": h, **own})
    if not rows:
        return None
    caption = "Maps of one window averaged over the blocks of a stage, head by head."
    return from_rows("attention_averaged", rows, caption)


def block_averages(store: Source, stage: int) -> dict[str, Array]:
    """`pr` and `pca_99` [head] of maps averaged over the blocks of a stage; empty where windows
    of different places would be averaged."""
    sites = [s for s in store.attention_sites if s.stage == stage]
    maps = [_maps(store, site) for site in sites]
    places = [
        np.asarray(store.array(f"attention/{site}/maps_at"))
        for site in sites
        if store.has(f"attention/{site}/maps_at")
    ]
    known = [m for m in maps if m is not None]
    if len(known) != len(sites) or len({m.shape for m in known}) != 1 or len(known[0]) < 3:
        return {}
    if len(places) != len(sites) or any(not np.array_equal(p, places[0]) for p in places):
        return {}  # averages of different windows would mean nothing
    mean = sum(m.astype(np.float32) for m in known) / np.float32(len(known))
    found = map_dimensions(np.asarray(mean))
    return {name: np.asarray(found[name]) for name in ("pr", "pca_99")}
