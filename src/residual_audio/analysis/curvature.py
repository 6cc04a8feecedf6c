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
import torch

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
    z = torch.tensor((x - mean) / scale, dtype=torch.float32)
    inside = torch.zeros(len(x), dtype=torch.bool)
    inside[torch.as_tensor(train)] = True
    axes = torch.linalg.svd(z[inside], full_matrices=False)[2]
    rest = z[~inside].double().numpy()
    out = []
    for k in ks:
        model = _fit(z[inside], axes[:k], n_steps, seed)
        with torch.no_grad():
            out.append(1 - _lost(rest, model(z[~inside]).double().numpy()))
    return np.array(out)


class _Bottleneck(torch.nn.Module):
    """x → U x + f(x) → Uᵀ h + g(h): PCA, and what bends it."""

    def __init__(self, axes: torch.Tensor) -> None:
        super().__init__()
        k, d = axes.shape
        self.axes = axes
        self.bend_in = torch.nn.Sequential(
            torch.nn.Linear(d, 4 * d), torch.nn.GELU(), torch.nn.Linear(4 * d, k)
        )
        self.bend_out = torch.nn.Sequential(
            torch.nn.Linear(k, 4 * d), torch.nn.GELU(), torch.nn.Linear(4 * d, d)
        )
        for part in (self.bend_in[2], self.bend_out[2]):
            torch.nn.init.zeros_(part.weight)  # type: ignore[arg-type]
            torch.nn.init.zeros_(part.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        middle = x @ self.axes.T + self.bend_in(x)
        bent: torch.Tensor = middle @ self.axes + self.bend_out(middle)
        return bent


def _fit(x: torch.Tensor, axes: torch.Tensor, n_steps: int, seed: int) -> _Bottleneck:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Bottleneck(axes)
    descent = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    for _ in range(n_steps):
        descent.zero_grad()
        ((model(x) - x) ** 2).mean().backward()  # type: ignore[no-untyped-call]
        descent.step()
    return model


def _lost(x: Array, back: Array) -> float:
    return float(((x - back) ** 2).sum() / (x**2).sum())
