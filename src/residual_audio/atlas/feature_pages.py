"""The pages of features: the clips that move each most, classes along it, words for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from residual_audio.analysis.description import Dictionary, joint_derivative, read_dictionary
from residual_audio.atlas.components import AT_CHANCE
from residual_audio.atlas.features import Features
from residual_audio.atlas.head_pages import Rows, digits, middle
from residual_audio.errors import InputError
from residual_audio.store import Store
from residual_audio.types import FloatArray

N_TOP = 8
N_LOW = 4
"""Clips at the other end, of features that have two."""


class FeaturePages:
    """What the pages of all features share."""

    def __init__(self, features: Features, store: Store, seed: int = 0) -> None:
        self._features = features
        labels = [None if v is None else str(v) for v in store.clips["label"]]
        self._labels = np.array([label or "" for label in labels], dtype=object)
        self._words = _words_of(store, seed) if features.directions is not None else None

    def listing(self) -> dict[str, Any]:
        """Columns of all features, for the list and for search."""
        found, along = self._features, self._features.activations
        known = np.isfinite(along)
        n_known = np.maximum(known.sum(1), 1)
        return {
            "title": found.name,
            "projected": found.projected,
            "n_clips": int(known.any(0).sum()),
            "name": list(found.names),
            "active": digits(np.where(known, along > 0, False).sum(1) / n_known),
            "largest": digits(np.where(known, along, -np.inf).max(1)),
            "label": [self._first_label(row) for row in along],
        }

    def _first_label(self, along: FloatArray) -> str | None:
        """The label that most of its first clips share, if more than half do."""
        names, counts = np.unique(self._labels[_order(along)[:N_TOP]], return_counts=True)
        best = int(counts.argmax())
        return str(names[best]) if names[best] and 2 * counts[best] > counts.sum() else None

    def pieces(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Number and page of every feature."""
        found = self._features
        for i, along in enumerate(found.activations):
            order = _order(along)
            n_low = min(N_LOW, max(0, len(order) - N_TOP)) if along[order[-1]] < 0 else 0
            low = order[::-1][:n_low]
            # of a unit that is off in most clips, those in which it is on
            top = order if n_low else order[along[order] > 0]
            yield (
                i,
                {
                    "number": i,
                    "name": found.names[i],
                    "about": found.about[i],
                    "top": [[int(row), *digits([along[row]])] for row in top[:N_TOP]],
                    "low": [[int(row), *digits([along[row]])] for row in low],
                    "values": digits(along[order[np.linspace(0, len(order) - 1, 101).astype(int)]]),
                    "classes": self._classes(along),
                    "words": None if self._words is None else self._words_for(i),
                },
            )

    def _classes(self, along: FloatArray) -> list[list[Any]]:
        rows = []
        for name in sorted(set(self._labels.tolist()) - {""}):
            own = along[(self._labels == name) & np.isfinite(along)]
            if len(own):
                rows.append([name, len(own), *digits(middle(own[:, None])[:, 0])])
        return sorted(rows, key=lambda row: -row[2])

    def _words_for(self, i: int) -> dict[str, object]:
        assert self._words is not None
        assert self._features.directions is not None
        dictionary, derivative = self._words
        row = dictionary.row(self._features.directions[i] @ derivative)
        fit, alike = float(str(row["fit_z"])), float(str(row["coherence_z"]))
        return {
            "texts": str(row["texts"]).split("; "),
            "fit_z": round(fit, 2),
            "coherence_z": round(alike, 2),
            "at_chance": min(fit, alike) < AT_CHANCE,
        }


def _order(along: FloatArray) -> Rows:
    """Clips that have a value, largest first."""
    known = np.flatnonzero(np.isfinite(along))
    return known[np.argsort(-along[known], kind="stable")]


def _words_of(store: Store, seed: int) -> tuple[Dictionary, FloatArray] | None:
    """Texts to describe directions with, and how the latent reaches them; None without texts."""
    if store.joint is None:
        return None
    try:
        return read_dictionary(store, seed), joint_derivative(store, seed=seed)[0]
    except InputError:
        return None
