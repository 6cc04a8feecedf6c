"""The shape of an audio cloud and a text cloud in their joint space, without labels.

Conventions: rows are items, made unit length by the caller where cosine is the similarity. RankMe
and the residual energy look at the singular values of the matrix as it is, uncentred; effective
rank (`metrics.spectra`) at the eigenvalues of the centred covariance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics.spectra import effective_rank

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Gap:
    """Between the two centroids."""

    l2: float
    cosine: float
    angle_deg: float


@dataclass(frozen=True, slots=True)
class Hubness:
    """How unevenly items are retrieved: N_k counts in how many k-nearest lists an item appears."""

    skewness: float
    robin_hood: float
    """Share of all list places that would have to move for every item to appear equally often."""
    never: float
    """Share of items that appear in no list."""


def unit_rows(x: Array, name: str = "embeddings") -> Array:
    """Rows of length 1 in float64; NaN and zero rows are errors that name the row."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] == 0:
        raise InputError(f"{name} must be [n, d], not {x.shape}")
    if len(x) == 0:
        raise InputError(f"{name}: there is no row")
    if not np.isfinite(x).all():
        raise InputError(f"{name}: row {int(np.argwhere(~np.isfinite(x))[0][0])} is not finite")
    norms = np.linalg.norm(x, axis=1)
    if not (norms > 0).all():
        raise InputError(f"{name}: row {int(np.argmin(norms))} is all zeros and has no direction")
    return x / norms[:, None]


def rank_me(x: Array, sigma: Array | None = None) -> float:
    """exp of the entropy of σ_i / Σσ, uncentred (Garrido et al. 2023); bounded by min(n, d).

    `sigma` spares the decomposition where the singular values are known.
    """
    return float(effective_rank(_singular_values(x) if sigma is None else sigma))


def residual_energy(
    x: Array, ks: tuple[int, ...] = (1, 5, 10), sigma: Array | None = None
) -> dict[int, float]:
    """1 − ρ_k: share of Σσ² beyond the first k singular values, uncentred."""
    energy = (_singular_values(x) if sigma is None else sigma) ** 2
    total = energy.sum()
    if not total > 0:
        return dict.fromkeys(ks, math.nan)
    return {k: max(0.0, float(energy[k:].sum() / total)) for k in ks}


def _singular_values(x: Array) -> Array:
    return np.linalg.svd(np.asarray(x, np.float64), compute_uv=False)


def mean_cosine(x: Array) -> float:
    """Mean cosine between different rows: near 0 for an even cloud, near 1 for a narrow cone."""
    n = len(x)
    if n < 2:
        return math.nan
    x = unit_rows(x)
    total = x.sum(0)
    return float((total @ total - n) / (n * (n - 1)))


def modality_gap(audio: Array, text: Array) -> Gap:
    """Distance, cosine and angle of the two centroids (Liang et al. 2022)."""
    a, t = np.asarray(audio, np.float64).mean(0), np.asarray(text, np.float64).mean(0)
    if a.shape != t.shape:
        raise InputError(f"audio has {len(a)} dimensions and text {len(t)}: not one joint space")
    scale = np.linalg.norm(a) * np.linalg.norm(t)
    cosine = float(np.clip(a @ t / scale, -1, 1)) if scale > 0 else math.nan
    angle = math.degrees(math.acos(cosine)) if cosine == cosine else math.nan
    return Gap(float(np.linalg.norm(a - t)), cosine, angle)


def uniformity(x: Array, t: float = 2.0) -> float:
    """log mean exp(−t |x_i − x_j|²) over pairs (Wang & Isola 2020); lower is more even."""
    x = np.asarray(x, dtype=np.float64)
    n = len(x)
    if n < 2:
        return math.nan
    total = 0.0
    for start in range(0, n, 2048):
        total += np.exp(-t * _squared_distances(x[start : start + 2048], x)).sum()
    return math.log(max(total - n, np.finfo(float).tiny) / (n * (n - 1)))


def alignment(x: Array, y: Array, alpha: float = 2.0) -> float:
    """Mean |x_i − y_i|^α of matched pairs; lower is better aligned."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.shape != y.shape:
        raise InputError(f"matched pairs must have one shape, not {x.shape} and {y.shape}")
    return float((np.linalg.norm(x - y, axis=1) ** alpha).mean())


def pair_auc(audio: Array, text: Array, pairs: Array | None = None) -> float:
    """P(a matched pair is more similar than an unmatched one): 0.5 is chance, scale-free.

    `pairs` [p, 2] holds rows of audio and text that belong together; row i with row i by default.
    """
    similarity = np.asarray(audio, np.float64) @ np.asarray(text, np.float64).T
    matched = np.zeros(similarity.shape, dtype=bool)
    if pairs is None:
        if len(audio) != len(text):
            raise InputError(f"{len(audio)} audios and {len(text)} texts are not matched pairs")
        np.fill_diagonal(matched, True)
    else:
        matched[pairs[:, 0], pairs[:, 1]] = True
    right, others = similarity[matched], np.sort(similarity[~matched])
    if len(right) == 0 or len(others) == 0:
        return math.nan
    below = np.searchsorted(others, right, side="left")
    upto = np.searchsorted(others, right, side="right")
    return float(((below + upto) / 2).mean() / len(others))


def mutual_neighbours(x: Array, y: Array, k: int = 10) -> float:
    """Mean share of an item's k nearest neighbours in x that are also its neighbours in y.

    It compares the two clouds each in its own space, so neither a gap nor a rotation between them
    matters: high with poor retrieval says that both sides know, and the alignment is what fails.
    """
    n = len(x)
    if len(y) != n:
        raise InputError(f"matched items are needed, not {n} and {len(y)}")
    if n < 3:
        return math.nan
    k = min(k, n - 2)
    near_x, near_y = _neighbours(x, x, k, same=True), _neighbours(y, y, k, same=True)
    shared = [len(np.intersect1d(a, b)) for a, b in zip(near_x, near_y, strict=True)]
    return float(np.mean(shared) / k)


def hubness(queries: Array, items: Array, k: int = 10, *, same: bool = False) -> Hubness:
    """Of `items` under k-nearest search by inner product; `same` leaves out the query itself."""
    n = len(items)
    if n < 2 or len(queries) == 0:
        return Hubness(math.nan, math.nan, math.nan)
    k = min(k, n - 1)
    times = np.bincount(_neighbours(queries, items, k, same).ravel(), minlength=n)
    expected = times.mean()
    skewness = float(stats.skew(times)) if np.ptp(times) > 0 else 0.0
    moved = np.abs(times - expected).sum() / (2 * times.sum())
    return Hubness(skewness, float(moved), float((times == 0).mean()))


def _neighbours(queries: Array, items: Array, k: int, same: bool) -> Array:
    similarity = np.asarray(queries, np.float64) @ np.asarray(items, np.float64).T
    if same:
        np.fill_diagonal(similarity, -np.inf)
    return np.argpartition(-similarity, k - 1, axis=1)[:, :k]


def _squared_distances(x: Array, y: Array) -> Array:
    return np.maximum((x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T, 0.0)
