"""The dimension battery: every linear and nonlinear estimate of many units from one pass.

A unit is a cloud [clip, d]: a head, a block's stream, an MLP's output, the joint embedding. Spectra
come from the d × d covariance, everything nonlinear from one exact neighbour search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.engine.jobs import available_cores, on_cores
from residual_audio.metrics.dimension import local_dimension, mle, refusals, two_nn
from residual_audio.metrics.estimators import of_neighbours, of_spectrum
from residual_audio.metrics.moments import Moments
from residual_audio.metrics.neighbours import Distances, neighbour_distances
from residual_audio.metrics.spectra import eigenspectrum, kept_share, spectrum_of_covariance
from residual_audio.metrics.validate import Array, as_heads, check_finite
from residual_audio.progress import SILENT, Progress

N_NEIGHBOURS = 20
"""Of the MLE estimate."""
MAX_SEARCHED = 20_000
"""Clips beyond which neighbours are searched in a random sample: the search grows as n²."""


@dataclass(frozen=True)
class Battery:
    """What was measured on a batch of units."""

    columns: dict[str, Array]
    """Column of a unit table → [unit]."""
    spectra: Array
    """[unit, d], eigenvalues, falling."""
    log_ratio: Array
    """[unit, clip], log(r₂/r₁): what a bootstrap over clips needs; NaN for dropped clips."""
    local: Array
    """[unit, clip], dimension around each clip (MLE, k neighbours); NaN for dropped clips."""
    sampled: Array | None = None
    """Clips the neighbours were searched in, where there were too many for all."""


def measure(
    x: Array,
    *,
    transform: Array | None = None,
    units: Sequence[str] | None = None,
    clips: Sequence[str] | None = None,
    moments: Moments | None = None,
    nonlinear: bool = True,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Battery:
    """Measure units [unit, clip, d], on all cores; `progress` advances by unit.

    moments: of more clips than these, which spectra are then of.

    transform [unit, d, m]: the isometry of a projection, to measure what comes after it.
    Beyond `MAX_SEARCHED` clips neighbours are searched in a random sample, and how far its two
    halves differ is reported (`twonn_spread`, `mle_spread`).
    """
    x = as_heads(x)
    check_finite(x, units, clips)
    drawn, sampled = np.arange(x.shape[1]), None
    if nonlinear and x.shape[1] > MAX_SEARCHED:
        drawn = np.random.default_rng(seed).choice(x.shape[1], MAX_SEARCHED, replace=False)
        sampled = np.sort(drawn)

    def some(rows: slice) -> tuple[dict[str, Array], Array, Array, Array]:
        cloud = x[rows]
        root = None if transform is None else transform[rows]
        spectra = _spectra(cloud, root, None if moments is None else moments.covariance[rows])
        n = x.shape[1] if moments is None else moments.n
        columns = {"n_clips": np.full(len(cloud), n)} | of_spectrum(spectra)
        if x.shape[2] >= 16:
            columns["kept_16"] = kept_share(spectra, 16)
        log_ratio, local = np.full(cloud.shape[:2], np.nan), np.full(cloud.shape[:2], np.nan)
        if nonlinear:
            searched = slice(None) if sampled is None else sampled
            near = neighbour_distances(cloud[:, searched], N_NEIGHBOURS, transform=root)
            found, log_ratio[:, searched], local[:, searched] = nonlinear_columns(near)
            columns |= found
            if sampled is not None:
                columns |= _spread(cloud, root, np.array_split(drawn, 2))
        progress.advance(len(cloud))
        return columns, spectra, log_ratio, local

    # a few heads a job save calls; fewer where there are not enough heads for all cores
    size = max(1, min(4, len(x) // (2 * available_cores())))
    jobs = [slice(start, start + size) for start in range(0, len(x), size)]
    parts = on_cores(some, jobs)
    return Battery(
        {name: np.concatenate([part[0][name] for part in parts]) for name in parts[0][0]},
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
        np.concatenate([part[3] for part in parts]),
        sampled,
    )


def _spectra(cloud: Array, root: Array | None, covariance: Array | None) -> Array:
    if covariance is None:
        return eigenspectrum(cloud if root is None else cloud.astype(np.float64) @ root)
    if root is not None:
        covariance = np.swapaxes(root, -1, -2) @ covariance @ root
    return spectrum_of_covariance(covariance)


def _spread(cloud: Array, root: Array | None, parts: Sequence[Array]) -> dict[str, Array]:
    """Standard deviation of the estimates over disjoint parts of the sampled clips."""
    found = [neighbour_distances(cloud[:, part], N_NEIGHBOURS, transform=root) for part in parts]
    return {
        "twonn_spread": np.std([two_nn(near).value for near in found], axis=0, ddof=1),
        "mle_spread": np.std([mle(near).value for near in found], axis=0, ddof=1),
    }


def nonlinear_columns(distances: Distances) -> tuple[dict[str, Array], Array, Array]:
    """Every estimate from neighbours with its error and reason; log(r₂/r₁); local dimensions."""
    columns = of_neighbours(distances)
    local = local_dimension(distances)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.array([np.nanstd(row) if np.isfinite(row).any() else np.nan for row in local])
        ratio = np.log(distances.values[..., 1] / distances.values[..., 0])
    ratio[np.isnan(columns["twonn"])] = np.nan
    columns |= {
        "local_std": spread,
        "duplicates": distances.duplicates,
        "reason": np.array(refusals(distances, distances.k), dtype=object),
    }
    return columns, ratio, local
