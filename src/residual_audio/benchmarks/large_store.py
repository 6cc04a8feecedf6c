"""A store of very many clips at the real tiny size, written without an encoder: how long it takes
to write, open, verify and analyse it, and in how much memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import TypedDict

import numpy as np

from residual_audio.analysis.analysis import Options, analyse
from residual_audio.capture.operators import encoder_operators, joint_operators
from residual_audio.data.registry import load_dataset
from residual_audio.models.registry import load_model
from residual_audio.provenance import collect
from residual_audio.store.reader import open_store
from residual_audio.store.sampled import sampled
from residual_audio.store.shards import ShardRows, shard_ranges, write_shard
from residual_audio.store.tensors import Array
from residual_audio.store.verify import verify_store
from residual_audio.store.writer import Fixed, StoreWriter
from residual_audio.types import Site

CLIPS_A_SHARD = 1000
_RANK = 6
"""Directions in which heads differ most; the rest is a tenth of that."""


class LargeStore(TypedDict):
    """What a large store costs."""

    clips: int
    heads: int
    store_gb: float
    manifest_mb: float
    index_mb: float
    write_s: float
    open_s: float
    """Manifest and clip index, every column that is asked for."""
    verify_s: float
    analyse_s: float
    analyse_peak_mb: float
    """Of the process, 184 heads raw and projected."""
    searched: int
    """Clips of the declared sample that neighbours are searched in; spectra are of all."""
    problems: int
    """That `verify` found."""


def write_large_store(folder: Path, n_clips: int, seed: int = 0) -> float:
    """Write it below `folder`, going on where it was left; seconds."""
    start = time.monotonic()
    model = load_model("htsat-tiny-random", "cpu")
    data = load_dataset("synthetic", n_clips=n_clips, seed=seed)
    store = folder / "store"
    store.mkdir(parents=True, exist_ok=True)
    writer = StoreWriter(store)
    if writer.begin(_asked(n_clips, data.template)):
        return time.monotonic() - start
    writer.describe(
        lambda: {
            "model": {"name": model.name, "family": model.family, "sha256": model.sha256},
            "partial": None,
            "sites": [list(astuple(site)) for site in model.encoder.sites],
            "logit_scale": float(model.logit_scale),
            "heard_before": None,
            "provenance": collect(model, None, seed),
        }
    )

    def fixed() -> Fixed:
        arrays, joint = joint_operators(model.head)
        texts = {"template": data.template, "classes": [], "dictionary": [], "sources": []}
        return Fixed(arrays | encoder_operators(model.encoder, ("heads",)), texts, joint, "none")

    writer.write_fixed(fixed)
    sites = [site for site in model.encoder.sites if site.kind == "attention"]
    make = _maker(sites, seed)
    notes = []
    for index, places in enumerate(shard_ranges(n_clips, CLIPS_A_SHARD)):
        rows = ShardRows()
        rows.add(make(index, len(places)), len(places))
        notes.append(write_shard(store, writer.fingerprint, index, places, rows, {}))
    writer.finish(data.clips, notes)
    return time.monotonic() - start


def _asked(n_clips: int, template: str) -> dict[str, object]:
    return {
        "model": {"family": "bench"},
        "dataset": {
            "name": "synthetic", "fingerprint": "bench", "n_clips": n_clips, "template": template,
        },
        "capture": {"kinds": ["embedding", "heads"]},
        "run": {
            "batch_size": 8, "shard_size": CLIPS_A_SHARD, "long": "first", "device": "cpu",
        },
    }  # fmt: skip


def _maker(sites: list[Site], seed: int) -> Callable[[int, int], dict[str, Array]]:
    """Head outputs of a shard: one drawn block, turned and moved for each shard, so that no two
    clips are the same and nothing is drawn twice."""
    rng = np.random.default_rng(seed)
    blocks: dict[Site, tuple[Array, Array]] = {}
    for site in sites:
        shape = (CLIPS_A_SHARD, site.n_heads, site.d_head)
        plane = rng.normal(size=(_RANK, site.n_heads, site.d_head)).astype(np.float32)
        along = rng.normal(size=(CLIPS_A_SHARD, _RANK)).astype(np.float32)
        wide = np.einsum("cr,rhd->chd", along, plane)
        blocks[site] = (wide + 0.1 * rng.normal(size=shape).astype(np.float32), plane)

    def make(index: int, n: int) -> dict[str, Array]:
        own = np.random.default_rng([seed, index])
        arrays: dict[str, Array] = {}
        for site, (block, plane) in blocks.items():
            moved = np.einsum("r,rhd->hd", own.normal(size=_RANK).astype(np.float32), plane)
            turned = np.roll(block[:n], index, axis=0)
            arrays[f"heads/{site}"] = turned * np.float32(own.choice([-1.0, 1.0])) + moved
        latent = own.normal(size=(n, sites[-1].width)).astype(np.float32)
        return arrays | {"embedding/latent": latent, "embedding/joint": latent[:, :512]}

    return make


def bench_large_store(folder: Path, n_clips: int) -> LargeStore:
    """In a process of its own, since a peak never falls."""
    write_s = write_large_store(folder, n_clips)
    start = time.monotonic()
    problems = verify_store(folder)
    verified = time.monotonic()
    store = open_store(folder)
    labels = set(store.clips["label"])
    opened = time.monotonic()
    assert len(labels) > 1
    small = sampled(store)
    analyse(small, Options(parts=frozenset({"projected"})))
    done = time.monotonic()
    whole = store.folder
    return {
        "clips": len(store),
        "heads": len(store.all_heads),
        "store_gb": round(store.size.n_bytes / 1e9, 2),
        "manifest_mb": round((whole / "manifest.json").stat().st_size / 1e6, 1),
        "index_mb": round((whole / "clips.parquet").stat().st_size / 1e6, 1),
        "write_s": round(write_s, 1),
        "open_s": round(opened - verified, 2),
        "verify_s": round(verified - start, 1),
        "analyse_s": round(done - opened, 1),
        "analyse_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "searched": len(small),
        "problems": len(problems),
    }
