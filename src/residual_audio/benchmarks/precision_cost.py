"""What products in fewer bits change: vectors, head outputs, dimensions, answers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.metrics.estimators import of_neighbours, of_spectrum
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.spectra import eigenspectrum
from residual_audio.models.precision import Precision
from residual_audio.store.reader import Store

Array = npt.NDArray[Any]
N_CLIPS = 164
"""Four of each synthetic class."""
_K = 20


def changes(before: Mapping[str, Array], after: Mapping[str, Array]) -> dict[str, float]:
    """Cosine of the joint vectors, and how far head outputs moved against their own size."""
    cosines = _cosines(before["embedding/joint"], after["embedding/joint"])
    moved = [
        np.linalg.norm(after[name] - before[name], axis=-1)
        / np.maximum(np.linalg.norm(before[name], axis=-1), 1e-12)
        for name in before
        if name.startswith("heads/")
    ]
    errors = np.concatenate([error.ravel() for error in moved])
    return {
        "cosine_min": float(cosines.min()),
        "cosine_mean": float(cosines.mean()),
        "head_error_median": float(np.median(errors)),
        "head_error_max": float(errors.max()),
    }


def cost_in_use(precision: Precision, n_clips: int = N_CLIPS) -> dict[str, float]:
    """The bundled model on synthetic sounds: zero-shot answers that stay, and the median change
    of every estimate of a head's dimension, as a share of it."""
    sounds = load_dataset("synthetic", n_clips=n_clips)
    with tempfile.TemporaryDirectory() as folder:
        stores = [
            extract("nano", sounds, Path(folder) / each, precision=each, device="cpu").store
            for each in ("float32", precision)
        ]
        answers = [_answers(store) for store in stores]
        estimates = [_estimates(store) for store in stores]
        found = {"nano_n_clips": float(n_clips)}
        found["nano_cosine_min"] = float(_cosines(*(s.embedding() for s in stores)).min())
    found["nano_answers_that_stay"] = float((answers[0] == answers[1]).mean())
    for name, before in estimates[0].items():
        change = np.abs(estimates[1][name] - before) / np.maximum(np.abs(before), 1e-12)
        found[f"nano_change_{name}"] = float(np.nanmedian(change))
    return found


def _cosines(a: Array, b: Array) -> Array:
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def _answers(store: Store) -> Array:
    classes = store.class_embeddings()
    assert classes is not None
    return (store.embedding() @ classes.T).argmax(1)


def _estimates(store: Store) -> dict[str, Array]:
    """Column → [head], of the raw outputs of every head."""
    columns: dict[str, list[Array]] = {}
    for site in store.attention_sites:
        x = store.heads(site).transpose(1, 0, 2).astype(np.float64)  # head clip d_head
        distances = neighbour_distances(x, _K)
        for name, values in (of_spectrum(eigenspectrum(x)) | of_neighbours(distances)).items():
            if not name.endswith(("_se", "_reason")):
                columns.setdefault(name, []).append(np.asarray(values, np.float64))
    return {name: np.concatenate(parts) for name, parts in columns.items()}
