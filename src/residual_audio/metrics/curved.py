"""Is a cloud curved? Isomap's dimension, and what a bottleneck keeps that PCA does not.

Isomap (Tenenbaum et al. 2000) lays points out by distances along a neighbour graph; the residual
variance 1 − r² between those and the distances of a k-dimensional layout falls to 0 where k is
enough. An autoencoder with k numbers in its middle is PCA where the cloud is flat, and better on
*held-out* points where it is curved; on the points it was fitted to it is always better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.validate import Array

NEIGHBOURS = 10
ENOUGH = 0.05
"""Residual variance below which k dimensions are enough."""


@dataclass(frozen=True)
class Layout:
    """Isomap of one cloud."""

    dimension: float
    """The smallest k with residual variance ≤ `ENOUGH`; NaN where none of those tried is."""
    residual: Array
    """[k − 1], of k = 1, 2, …"""


def isomap(x: Array, largest: int = 10, n_neighbours: int = NEIGHBOURS) -> Layout:
    """Of points [clip, d]; the neighbour graph's parts are joined by their nearest points."""
    from sklearn.manifold import Isomap

    x = np.asarray(x, dtype=np.float64)
    if len(x) <= n_neighbours + 1:
        raise InputError(f"Isomap of {n_neighbours} neighbours needs more than {len(x)} clips")
    largest = min(largest, x.shape[1])
    found = Isomap(n_neighbors=n_neighbours, n_components=largest).fit(x)
    places = np.triu_indices(len(x), 1)
    along = found.dist_matrix_[places]
    residual = []
    for k in range(1, largest + 1):
        y = found.embedding_[:, :k]
        square = ((y[:, None] - y[None]) ** 2).sum(-1)
        residual.append(1 - np.corrcoef(along, np.sqrt(square[places]))[0, 1] ** 2)
    enough = np.flatnonzero(np.array(residual) <= ENOUGH)
    return Layout(float(enough[0] + 1) if len(enough) else float("nan"), np.array(residual))


def kept_by_components(x: Array, train: Array, ks: Sequence[int]) -> Array:
    """Share of the variance of the other clips that k principal components of `train` keep."""
    mean = x[train].mean(0)
    axes = np.linalg.svd(x[train] - mean, full_matrices=False)[2]
    rest = np.delete(x, train, axis=0) - mean
    return np.array([1 - _lost(rest, rest @ axes[:k].T @ axes[:k]) for k in ks])


def kept_by_bottleneck(
    x: Array, train: Array, ks: Sequence[int], *, n_steps: int = 200, seed: int = 0
) -> Array:
    """The same by an autoencoder d → 4d → k → 4d → d, fitted on `train` from PCA's own start.

    It carries the principal components past its hidden layers, so that it begins as PCA does and
    learns only what is curved.
    """
    mean, scale = x[train].mean(0), float(x[train].std()) or 1.0
    z = (np.asarray(x, np.float64) - mean) / scale
    fit, rest = z[train], np.delete(z, train, axis=0)
    axes = np.linalg.svd(fit, full_matrices=False)[2]
    out = []
    for k in ks:
        weights = _fit(fit, axes[:k], n_steps, np.random.default_rng(seed))
        out.append(1 - _lost(rest, _forward(rest, axes[:k], weights)[-1]))
    return np.array(out)


def _forward(x: Array, axes: Array, weights: Sequence[Array]) -> tuple[Array, ...]:
    """m = x Uᵀ + tanh(x A) B, then y = m U + tanh(m C) D: PCA, and what bends it."""
    a, b, c, d = weights
    first = np.tanh(_one(x) @ a)
    middle = x @ axes.T + first @ b
    second = np.tanh(_one(middle) @ c)
    return first, middle, second, middle @ axes + second @ d


def _fit(x: Array, axes: Array, n_steps: int, rng: np.random.Generator) -> list[Array]:
    """Adam on the squared error of all points; B and D begin at 0, so that it begins as PCA."""
    k, width = axes.shape
    hidden = 4 * width
    weights = [
        rng.normal(size=(width + 1, hidden)) / np.sqrt(width),
        np.zeros((hidden, k)),
        rng.normal(size=(k + 1, hidden)) / np.sqrt(k),
        np.zeros((hidden, width)),
    ]
    m, v = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for step in range(1, n_steps + 1):
        slopes = _slopes(x, axes, weights)
        for i, g in enumerate(slopes):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g * g
            move = m[i] / (1 - 0.9**step) / (np.sqrt(v[i] / (1 - 0.999**step)) + 1e-8)
            weights[i] = weights[i] - 3e-3 * (move + 1e-2 * weights[i])
    return weights


def _slopes(x: Array, axes: Array, weights: Sequence[Array]) -> list[Array]:
    """Derivatives of the mean squared error, by hand."""
    _, b, c, d = weights
    first, middle, second, y = _forward(x, axes, weights)
    error = 2 * (y - x) / x.size
    at_second = (error @ d.T) * (1 - second**2)
    at_middle = error @ axes.T + at_second @ c[:-1].T
    at_first = (at_middle @ b.T) * (1 - first**2)
    return [
        _one(x).T @ at_first, first.T @ at_middle, _one(middle).T @ at_second, second.T @ error,
    ]  # fmt: skip


def _one(x: Array) -> Array:
    """A column of ones beside it."""
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


def _lost(x: Array, back: Array) -> float:
    return float(((x - back) ** 2).sum() / (x**2).sum())
