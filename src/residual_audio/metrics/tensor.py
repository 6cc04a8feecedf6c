"""What mean pooling discards: head outputs over clip × time × frequency × channel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.spectra import participation_ratio, pca_dimension
from residual_audio.metrics.validate import Array

PARTS = ("clip", "time", "frequency", "rest")
MODES = ("clip", "time", "frequency", "channel")


def variance_shares(pooled: Array, split: Array) -> Array:
    """Shares of clip mean, time, frequency and rest in the variance over all tokens: [head, 4].

    pooled [head, clip, d]: clip means. split [head, clip, 3]: variance inside each clip along
    time, along frequency, and the rest, as capture keeps it.
    """
    pooled = np.asarray(pooled, dtype=np.float64)
    split = np.asarray(split, dtype=np.float64)
    if split.shape != (*pooled.shape[:2], 3):
        raise InputError(f"a split {split.shape} does not belong to heads {pooled.shape}")
    centred = pooled - pooled.mean(axis=1, keepdims=True)
    between = (centred**2).sum(-1).mean(-1)
    parts = np.concatenate([between[:, None], split.mean(axis=1)], axis=1)
    total = parts.sum(-1, keepdims=True)
    return np.divide(parts, total, out=np.full_like(parts, np.nan), where=total > 0)


@dataclass(frozen=True)
class HigherOrderSVD:
    """Higher-order SVD (De Lathauwer et al. 2000) of clip × time × frequency × channel."""

    values: dict[str, Array]
    """Mode → squared singular values of the unfolding along it, falling; each sums to ‖X‖²."""
    factors: dict[str, Array]
    """Mode → [size, size] orthonormal columns."""
    core: Array
    """X = core ×₁ U₁ ×₂ U₂ ×₃ U₃ ×₄ U₄"""

    def participation(self) -> dict[str, float]:
        """Participation ratio of each mode: how many patterns over clips, times, … there are."""
        return {mode: float(participation_ratio(v)) for mode, v in self.values.items()}

    def rank(self, share: float) -> dict[str, int]:
        """Patterns that each mode needs to keep `share` of ‖X‖²."""
        return {mode: int(pca_dimension(v, share)) for mode, v in self.values.items()}

    def kept(self, share: float) -> float:
        """Share of ‖X‖² that the core cut to `rank(share)` keeps in all modes at once."""
        ranks = self.rank(share)
        cut = self.core[tuple(slice(ranks[mode]) for mode in MODES)]
        return float((cut**2).sum() / (self.core**2).sum())


def higher_order_svd(h: Array) -> HigherOrderSVD:
    """HOSVD of one head's tokens [clip, time, frequency, d], after taking out the channel means.

    With the overall mean left in, the first pattern of every mode would be that constant.
    """
    h = np.asarray(h, dtype=np.float64)
    if h.ndim != 4:
        raise InputError(f"expected [clip, time, frequency, channel], got shape {h.shape}")
    x = h - h.mean(axis=(0, 1, 2))
    if not np.any(x):
        raise InputError("a constant head has no patterns to decompose")
    values, factors, core = {}, {}, x
    for axis, mode in enumerate(MODES):
        unfolded = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
        eigenvalues, vectors = np.linalg.eigh(unfolded @ unfolded.T)
        values[mode] = np.clip(eigenvalues[::-1], 0.0, None)
        factors[mode] = np.ascontiguousarray(vectors[:, ::-1])
        core = np.moveaxis(np.tensordot(factors[mode].T, core, axes=(1, axis)), 0, axis)
    return HigherOrderSVD(values, factors, core)
