"""Two runs side by side: the same heads' numbers, and for each head the one most like it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.atlas.answer import answer_of
from residual_audio.atlas.numbers import as_piece, numbers_of
from residual_audio.errors import InputError
from residual_audio.provenance import without_machine_paths
from residual_audio.report.run_tables import Tables
from residual_audio.store import Store, open_store
from residual_audio.types import FloatArray

FEWEST_CLIPS = 10


def other_piece(run: Path, other: Path, store: Store, tables: Tables) -> dict[str, Any]:
    """The second run as the page of the first shows it."""
    if not other.is_dir():
        raise InputError(f"'{other}' is not a run folder")
    if other.resolve() == run.resolve():
        raise InputError(f"'{other}' is the same run twice: give two")
    there = open_store(other)
    own_ids = [str(head) for head in store.all_heads]
    ids = [str(head) for head in there.all_heads]
    numbers = numbers_of(Tables(other), ids)
    return {
        "title": without_machine_paths(f"{there.model_info.name} on {there.dataset_info.name}"),
        "run": other.resolve().name,
        "n_clips": len(there),
        "answer": answer_of(other, there, Tables(other)),
        "ids": ids,
        "numbers": as_piece(numbers),
        "same_heads": own_ids == ids,
        "aligned": _aligned(store, there),
    }


def _aligned(a: Store, b: Store) -> dict[str, object] | None:
    """For each head of `a` the head of `b` with the largest CKA over the clips both have heard."""
    place = {str(clip): i for i, clip in enumerate(b.clips["id"])}
    common = [(i, place[str(c)]) for i, c in enumerate(a.clips["id"]) if str(c) in place]
    if len(common) < FEWEST_CLIPS:
        return None
    rows_a, rows_b = np.array(common).T
    grams_a, grams_b = _grams(a, rows_a), _grams(b, rows_b)
    cka = np.clip(grams_a @ grams_b.T, 0.0, 1.0)
    best = cka.argmax(1)
    names = [str(head) for head in b.all_heads]
    return {
        "n_clips": len(common),
        "best": [names[i] for i in best],
        "cka": [round(float(cka[i, j]), 4) for i, j in enumerate(best)],
    }


def _grams(store: Store, rows: FloatArray) -> FloatArray:
    """[head, clip · clip]: centred Gram matrices of unit length, whose products are linear CKA."""
    found = []
    for site in store.attention_sites:
        heads = np.asarray(store.heads(site)[rows], np.float64)  # clip head d_head
        heads = heads - heads.mean(0)
        grams = np.einsum("ihd,jhd->hij", heads, heads).reshape(site.n_heads, -1)
        size = np.linalg.norm(grams, axis=1, keepdims=True)
        found.append((grams / np.maximum(size, 1e-300)).astype(np.float32))
    return np.concatenate(found)
