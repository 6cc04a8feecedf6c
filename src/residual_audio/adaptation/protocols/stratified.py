"""Clips drawn class by class, as published protocols draw them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def stratified_sample(labels: Sequence[str | None], n: int, seed: int) -> np.ndarray:
    """Numbers of `n` clips (all, where there are no more), each class in proportion."""
    names = np.asarray([label or "" for label in labels])
    if n >= len(names):
        return np.arange(len(names))
    rng = np.random.default_rng(seed)
    classes, counts = np.unique(names, return_counts=True)
    exact = counts * n / len(names)
    take = np.floor(exact).astype(int)
    # what rounding left over goes to the classes that lost most by it
    short = np.argsort(take - exact, kind="stable")[: n - take.sum()]
    take[short] += 1
    drawn = [
        rng.permutation(np.flatnonzero(names == name))[:k]
        for name, k in zip(classes, take, strict=True)
    ]
    return np.sort(np.concatenate(drawn))
