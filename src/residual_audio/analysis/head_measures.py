"""Dimension of every head: raw, after W_O, over tokens; and of blocks, stages, MLPs, embeddings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.analysis.aggregate import complete_head_table
from residual_audio.analysis.battery import MAX_SEARCHED, measure
from residual_audio.analysis.source import Source, clip_ids, each_site
from residual_audio.engine.jobs import on_cores
from residual_audio.metrics.estimators import of_spectrum
from residual_audio.metrics.kernels import kernel_dimension, kernel_pca_spectrum
from residual_audio.metrics.spectra import (
    effective_rank,
    isometry,
    participation_ratio,
    pca_dimension,
    spectrum_of_covariance,
)
from residual_audio.metrics.validate import Array
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows

N_KERNEL_CLIPS = 300


@dataclass(frozen=True)
class HeadMeasures:
    """The per-head table and what later parts reuse."""

    table: Table
    spectra: dict[str, Array]
    """Space (raw, projected, token) → [head, d]; NaN beyond a head's own width."""
    log_ratio: Array
    """[head, clip], log(r₂/r₁)"""
    local: Array
    """[head, clip], local dimension"""


def measure_heads(
    store: Source,
    *,
    projected: bool = True,
    tokens: bool = True,
    nonlinear: bool = True,
    kernel: bool = False,
    seed: int = 0,
    progress: Progress = SILENT,
) -> HeadMeasures:
    """Every estimate of every head, one site in memory at a time."""
    columns: list[dict[str, Array]] = []
    spectra: dict[str, list[Array]] = {"raw": []}
    ratios, local, clips = [], [], clip_ids(store)
    tokens = tokens and all(store.has(f"moments/{site}/mean") for site in store.attention_sites)
    n_heads = sum(site.n_heads for site in store.attention_sites)
    progress.step("analyse: dimension", n_heads * (1 + projected), "heads")
    for part in each_site(store):
        over_clips = store.clip_moments(part.site)
        raw = measure(
            part.x, units=part.names, clips=clips, moments=over_clips, nonlinear=nonlinear,
            seed=seed, progress=progress,
        )  # fmt: skip
        found = {"head_id": np.array(part.names, dtype=object)} | raw.columns
        spectra["raw"] += list(raw.spectra)
        ratios.append(raw.log_ratio)
        local.append(raw.local)
        if projected:
            after = measure(
                part.x,
                transform=isometry(part.w_out),
                moments=over_clips,
                nonlinear=nonlinear,
                seed=seed,
                progress=progress,
            )
            found |= {f"projected_{k}": v for k, v in after.columns.items() if k not in _SHARED}
            spectra.setdefault("projected", []).extend(after.spectra)
        if tokens:
            moments = store.moments(part.site)
            values = spectrum_of_covariance(moments.covariance)
            found |= {f"token_{k}": v for k, v in of_spectrum(values).items()}
            found["n_tokens"] = np.full(len(values), moments.n)
            spectra.setdefault("token", []).extend(values)
        if kernel:
            found |= kernel_columns(part.x, seed)
        columns.append(found)
    joined = {name: np.concatenate([c[name] for c in columns]) for name in columns[0]}
    if "reason" in joined:  # last: it is the longest
        joined["reason"] = joined.pop("reason")
    table = complete_head_table(
        Table("heads", joined, CAPTION, _notes(joined, len(clips), store.n_all))
    )
    width = max(len(row) for row in spectra["raw"])
    return HeadMeasures(
        table,
        {space: np.stack([_pad(row, width) for row in rows]) for space, rows in spectra.items()},
        np.concatenate(ratios),
        np.concatenate(local),
    )


CAPTION = (
    "Dimension of every attention head over clips: raw (before W_O), projected_ (after W_O) and "
    "token_ (over all tokens)."
)
_SHARED = {"n_clips", "reason", "duplicates"}


def _pad(row: Array, width: int) -> Array:
    return np.pad(row, (0, width - len(row)), constant_values=np.nan)


def _notes(columns: dict[str, Array], n_clips: int, n_all: int) -> tuple[str, ...]:
    notes = [f"{n_all} clips"]
    if n_all > n_clips:
        notes.append(f"spectra are of all clips, all else of a random sample of {n_clips}")
    elif n_clips > MAX_SEARCHED:
        notes.append(f"neighbours were searched in a random sample of {MAX_SEARCHED} clips")
    refused = int(np.count_nonzero(columns["reason"])) if "reason" in columns else 0
    if refused:
        notes.append(f"{refused} heads have no nonlinear estimate: see column 'reason'")
    dropped = int(np.max(columns["duplicates"])) if "duplicates" in columns else 0
    if dropped:
        notes.append(f"up to {dropped} duplicate clips were dropped from the neighbour search")
    if "kernel_dimension" in columns:
        sample = int(columns["n_kernel_clips"][0])
        notes.append(f"kernel_ columns come from a random sample of {sample} clips")
    return tuple(notes)


def kernel_columns(x: Array, seed: int, n_sample: int = N_KERNEL_CLIPS) -> dict[str, Array]:
    """Nonlinear counterparts of the spectrum, from a sample of clips: [head, clip, d] → columns."""
    n = x.shape[1]
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:n_sample])
    if len(chosen) < 10:
        return {}

    def one(cloud: Array) -> tuple[float, Array]:
        return kernel_dimension(cloud).dimension, kernel_pca_spectrum(cloud)

    found = on_cores(one, [head[chosen] for head in x])
    spectra = np.stack([spectrum for _, spectrum in found])
    return {
        "kernel_dimension": np.array([dimension for dimension, _ in found]),
        "kernel_pca_90": pca_dimension(spectra, 0.90),
        "kernel_pr": participation_ratio(spectra),
        "kernel_eff_rank": effective_rank(spectra),
        "n_kernel_clips": np.full(len(x), len(chosen)),
    }


def spectra_table(measures: HeadMeasures) -> Table:
    """One row an eigenvalue: head, space, component, eigenvalue, share."""
    rows: dict[str, list[Array]] = {
        k: [] for k in ("head_id", "space", "component", "eigenvalue", "share")
    }
    ids = measures.table["head_id"]
    for space, spectra in measures.spectra.items():
        total = np.nansum(spectra, axis=1)
        for name, values, whole in zip(ids, spectra, total, strict=True):
            known = values[~np.isnan(values)]
            rows["head_id"].append(np.full(len(known), name, dtype=object))
            rows["space"].append(np.full(len(known), space, dtype=object))
            rows["component"].append(np.arange(1, len(known) + 1))
            rows["eigenvalue"].append(known)
            rows["share"].append(known / whole)
    return Table(
        "spectra",
        {key: np.concatenate(values) for key, values in rows.items()},
        "Eigenvalues of every head's covariance.",
        measures.table.notes,
    )


def local_table(store: Source, measures: HeadMeasures) -> Table:
    """One row a clip: the dimension around it, mean over the heads of each stage."""
    stages = measures.table["stage"]
    columns: dict[str, Array] = {
        "clip": np.array(clip_ids(store), dtype=object),
        "label": np.array([v or "" for v in store.clips["label"]], dtype=object),
    }
    for stage in np.unique(stages):
        values = measures.local[stages == stage]
        known = np.isfinite(values)
        with np.errstate(invalid="ignore"):
            mean = np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0)
        columns[f"s{stage}"] = mean
    note = "empty where a clip was dropped as a duplicate, or not sampled"
    caption = "Dimension around each clip (MLE over 20 neighbours), mean over the heads of a stage."
    return Table("local_dimension", columns, caption, (*measures.table.notes, note))


def measure_units(
    store: Source, kinds: tuple[str, ...], seed: int = 0, progress: Progress = SILENT
) -> Table | None:
    """Blocks (stream, attention, MLP), stages, latent and joint embedding, one row each."""
    wanted = [n for n in store.names if n.split("/")[0] in kinds]
    wanted += [n for n in ("embedding/latent", "embedding/joint") if store.has(n)]
    rows, clips = [], clip_ids(store)
    progress.step("analyse: units", len(wanted), "units")
    for name in wanted:
        x = np.asarray(store.array(name))
        if x.ndim != 2:
            progress.advance()
            continue
        found = measure(x[None], units=[name], clips=clips, seed=seed, progress=progress)
        row = {"unit": name, "kind": name.split("/")[0], "width": x.shape[1]}
        rows.append(row | {key: values[0] for key, values in found.columns.items()})
    if not rows:
        return None
    caption = "Dimension of residual streams, attention and MLP outputs, stages and embeddings."
    return from_rows("units", rows, caption, (f"{len(clips)} clips",))
