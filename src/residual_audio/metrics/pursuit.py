"""Describe a direction by a few entries of a dictionary: non-negative orthogonal matching pursuit.

"A dog and a bark" is a description, "minus a dog" is not: weights are kept non-negative, and a
direction and its opposite are described separately.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from residual_audio.errors import InputError
from residual_audio.metrics.validate import Array


@dataclass(frozen=True)
class Description:
    """A direction written as a sum of few dictionary entries."""

    entries: tuple[int, ...]
    """Chosen entries, in order of choice."""
    weights: tuple[float, ...]
    fit: float
    """Cosine between the direction and the sum."""


def centre_dictionary(dictionary: Array) -> Array:
    """Take out what all entries share and scale to unit length: [entry, d].

    Text embeddings of one model lie in a narrow cone; their mean direction says "text", not what.
    """
    centred = np.asarray(dictionary, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    size = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.divide(centred, size, out=np.zeros_like(centred), where=size > 0)


def matching_pursuit(direction: Array, dictionary: Array, n_entries: int = 5) -> Description:
    """Greedily add the entry most aligned with what is left, refit all weights, repeat.

    dictionary: [entry, d], unit rows. Stops early when no entry points towards the remainder.
    """
    direction = np.asarray(direction, dtype=np.float64)
    if dictionary.ndim != 2 or dictionary.shape[1:] != direction.shape:
        raise InputError(f"a dictionary {dictionary.shape} cannot describe {direction.shape}")
    size = np.linalg.norm(direction)
    if not size > 0:
        return Description((), (), float("nan"))
    target = direction / size
    chosen: list[int] = []
    weights, rest, fitted = np.empty(0), target, np.zeros_like(target)
    for _ in range(min(n_entries, len(dictionary))):
        alignment = dictionary @ rest
        alignment[chosen] = -np.inf
        best = int(alignment.argmax())
        if alignment[best] <= 1e-9:
            break
        chosen.append(best)
        weights, _ = nnls(dictionary[chosen].T, target)
        fitted = weights @ dictionary[chosen]
        rest = target - fitted
    norm = np.linalg.norm(fitted)
    fit = float(fitted @ target / norm) if norm > 0 else 0.0
    return Description(tuple(chosen), tuple(float(w) for w in weights), fit)


def random_directions(dictionary: Array, n_draws: int, rng: np.random.Generator) -> Array:
    """Meaningless directions of the space the dictionary spans: [draw, d].

    A randomly rotated dictionary describing one direction is the same as this dictionary describing
    a random direction, so one set of draws serves every head.
    """
    _, sizes, axes = np.linalg.svd(dictionary, full_matrices=False)
    rank = int((sizes > 1e-8 * sizes[0]).sum())
    return rng.normal(size=(n_draws, rank)) @ axes[:rank]


def coherence(direction: Array, dictionary: Array, n_entries: int = 5) -> float:
    """Mean cosine between the entries that lie nearest to the direction: do they name one thing?

    Not those of the pursuit, which avoids entries that repeat each other. NaN for fewer than two.
    """
    nearest = np.argsort(dictionary @ np.asarray(direction, dtype=np.float64))[::-1][:n_entries]
    if len(nearest) < 2:
        return float("nan")
    gram = dictionary[nearest] @ dictionary[nearest].T
    return float(gram[np.triu_indices(len(nearest), 1)].mean())
