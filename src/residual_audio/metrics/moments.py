"""Mean and scatter, exactly mergeable: spectra of any number of vectors in constant memory.

Moments of parts combine to the moments of the whole (Chan, Golub & LeVeque 1979), in any order:

    δ = μ_b − μ_a,   μ = μ_a + δ n_b/n,   S = S_a + S_b + δ δᵀ n_a n_b/n
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.validate import Array


@dataclass(frozen=True)
class Moments:
    """Count, mean and centred scatter of a batch of units, in float64."""

    n: int
    """Vectors seen (the same for every unit of the batch)."""
    mean: Array
    """[..., d]"""
    scatter: Array
    """[..., d, d], Σ (x − μ)(x − μ)ᵀ"""

    def __post_init__(self) -> None:
        if self.scatter.shape != (*self.mean.shape, self.mean.shape[-1]):
            raise InputError(
                f"mean {self.mean.shape} and scatter {self.scatter.shape} do not belong together"
            )

    @classmethod
    def of(cls, x: Array) -> Moments:
        """Moments over the second-last axis of `x` [..., vector, d]."""
        x = np.asarray(x, dtype=np.float64)
        n = x.shape[-2]
        if n == 0:
            d = x.shape[-1]
            return cls(0, np.zeros((*x.shape[:-2], d)), np.zeros((*x.shape[:-2], d, d)))
        mean = x.mean(axis=-2)
        centred = x - mean[..., None, :]
        # the mean is itself rounded: what is left of it is taken out of the scatter (two-pass)
        rest = centred.sum(axis=-2)
        scatter = np.swapaxes(centred, -1, -2) @ centred
        scatter -= rest[..., :, None] * rest[..., None, :] / n
        return cls(n, mean + rest / n, scatter)

    def merge(self, other: Moments) -> Moments:
        """Moments of both sets of vectors together."""
        if self.mean.shape != other.mean.shape:
            raise InputError(f"cannot merge moments of {self.mean.shape} and {other.mean.shape}")
        if self.n == 0 or other.n == 0:
            return other if self.n == 0 else self
        n = self.n + other.n
        delta = other.mean - self.mean
        outer = delta[..., :, None] * delta[..., None, :]
        return Moments(
            n,
            self.mean + delta * (other.n / n),
            self.scatter + other.scatter + outer * (self.n * other.n / n),
        )

    @property
    def covariance(self) -> Array:
        """[..., d, d] with ddof 1; NaN for fewer than two vectors."""
        if self.n < 2:
            return np.full_like(self.scatter, np.nan)
        return self.scatter / (self.n - 1)


def merge_all(parts: Iterable[Moments]) -> Moments:
    """Merge any number of parts, pairwise as a tree: rounding grows with their logarithm."""
    level = list(parts)
    if not level:
        raise InputError("there are no moments to merge")
    while len(level) > 1:
        level = [reduce(Moments.merge, level[i : i + 2]) for i in range(0, len(level), 2)]
    return level[0]
