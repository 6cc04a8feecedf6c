"""Gains: what they do to a vector, and whether they fit a model.

A unit with mean μ, orthonormal rows Φ and gains λ maps a row vector x to

    keep_mean   y = x + (x − μ) P,   P = Φᵀ diag(λ − 1) Φ     (λ = 1 is the identity)
    drop_mean   y = (x − μ) M,       M = Φᵀ diag(λ) Φ         (the published formula: the mean and
                                                              all directions outside Φ are lost)

With a gain λ₀ of the mean, keep_mean also adds (λ₀ − 1) μ: the one direction that no gain on
centred components can reach, and the one that decides which class a foreign domain is taken for.

A unit whose basis is empty has one *coarse* gain, which scales all directions alike. Uncorrelated
components (see there) are read of x itself, by readers R: P = Rᵀ diag(λ − 1) Φ, and no μ is taken
away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np

from residual_audio.errors import InputError, ModelError
from residual_audio.reweight.uncorrelated import Uncorrelated, centre_of, energy_of, readers_of
from residual_audio.types import FloatArray, Gains, Site, Spectrum, parse_units


def identity_gains(
    spectra: Mapping[str, Spectrum], *, mean_gains: bool = False, **about: Any
) -> Gains:
    """λ = 1 everywhere; with `mean_gains`, a gain of every unit's mean as well."""
    means = dict.fromkeys(spectra, 1.0) if mean_gains else {}
    gains = {unit: np.ones(size_of(s)) for unit, s in spectra.items()}
    return Gains(gains, spectra, means=means, **about)


def size_of(spectrum: Spectrum) -> int:
    """Gains that a spectrum takes: one a component, or a single coarse one."""
    return max(1, len(spectrum.basis))


def coarse(spectrum: Spectrum) -> Spectrum:
    """The same mean with no axes: one gain for all directions."""
    return replace(spectrum, basis=spectrum.basis[:0], eigenvalues=spectrum.eigenvalues[:0])


def affine(
    spectrum: Spectrum, gains: FloatArray, keep_mean: bool, mean_gain: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """A [d, d] and c [d] with y = x A + c, in float64."""
    phi = np.asarray(spectrum.basis, np.float64)
    mean = np.asarray(spectrum.mean, np.float64)
    scale = np.asarray(gains, np.float64) - (1.0 if keep_mean else 0.0)
    read, centre = np.asarray(readers_of(spectrum), np.float64), centre_of(spectrum)
    p = read.T @ (scale[:, None] * phi) if len(phi) else scale[0] * np.eye(len(mean))
    shift = (mean_gain - 1.0) * mean - np.asarray(centre, np.float64) @ p
    return (np.eye(len(mean)) + p if keep_mean else p), shift


def affine_of(gains: Gains, unit: str) -> tuple[FloatArray, FloatArray]:
    """A and c of one unit."""
    mean_gain = float(gains.means.get(unit, 1.0))
    return affine(gains.spectra[unit], gains.gains[unit], gains.keep_mean, mean_gain)


def check_gains(gains: Gains) -> Gains:
    """The same gains, or an error that names the unit that makes no sense."""
    if not gains.gains:
        raise InputError("these gains hold no unit")
    for unit, values in gains.gains.items():
        if unit not in gains.spectra:
            raise InputError(f"gains for '{unit}' come without its spectrum")
        spectrum = gains.spectra[unit]
        if np.shape(values) != (size_of(spectrum),):
            raise InputError(
                f"'{unit}' has {np.size(values)} gains for {len(spectrum.basis)} components"
            )
        if np.shape(readers_of(spectrum)) != np.shape(spectrum.basis):
            raise InputError(f"'{unit}' has other readers than axes")
        if isinstance(spectrum, Uncorrelated) and np.shape(spectrum.moment) != 2 * np.shape(values):
            raise InputError(f"the moment of '{unit}' is not one of its components")
        if not np.isfinite(values).all():
            bad = int(np.argwhere(~np.isfinite(values))[0, 0])
            raise InputError(f"gain {bad} of '{unit}' is {np.asarray(values)[bad]}: not a number")
    for unit, value in gains.means.items():
        if unit not in gains.gains:
            raise InputError(f"a gain of the mean of '{unit}' comes without gains of that unit")
        if not np.isfinite(value):
            raise InputError(f"the gain of the mean of '{unit}' is {value}: not a number")
    if gains.means and not gains.keep_mean:
        raise InputError("gains of means make no sense where the mean is dropped")
    return gains


def check_fits(gains: Gains, sites: Sequence[Site], latent: int, sha256: str | None = None) -> None:
    """Refuse gains of another model, saying what gives them away."""
    made_for = dict(gains.fitted_on).get("model", {})
    if sha256 and isinstance(made_for, Mapping) and made_for.get("sha256") not in (None, sha256):
        raise ModelError(
            f"these gains were fitted on '{made_for.get('name')}' "
            f"(sha256 {str(made_for['sha256'])[:12]}…), not on this model ({sha256[:12]}…)"
        )
    try:
        units = parse_units(gains.spectra, sites)
    except InputError as error:
        raise ModelError(f"these gains belong to another model: {error}") from error
    for unit, spectrum in zip(units, gains.spectra.values(), strict=True):
        want = latent if gains.path == "direct" or unit.kind == "output" else unit.width
        if np.shape(spectrum.mean) != (want,):
            raise ModelError(
                f"the gains of '{unit}' act on {np.size(spectrum.mean)} dimensions, "
                f"this model has {want} there: they belong to another model"
            )


def blend(gains: Gains, amount: float) -> Gains:
    """λ ← 1 + amount (λ − 1): 0 switches the gains off, 1 leaves them, between is half-way."""
    if amount == 1.0:  # 1 + (λ − 1) is not λ to the last bit
        return gains
    moved = {unit: 1.0 + amount * (np.asarray(v) - 1.0) for unit, v in gains.gains.items()}
    means = {unit: 1.0 + amount * (value - 1.0) for unit, value in gains.means.items()}
    return replace(gains, gains=moved, means=means)


def n_gains(gains: Gains) -> int:
    """Numbers in all."""
    return sum(np.size(values) for values in gains.gains.values()) + len(gains.means)


class Moved(TypedDict):
    """How far the gains of a unit went from 1."""

    unit: str
    energy: float
    component: int
    """The one that moved most."""
    gain: float
    mean_gain: float


def moved(gains: Gains, top: int = 10) -> list[Moved]:
    """The units that moved most, by the energy of the change (Σ_i (λ_i − 1)² σ_i² along principal
    axes); none where all gains are 1."""
    rows: list[Moved] = []
    for unit, values in gains.gains.items():
        spectrum = gains.spectra[unit]
        variance = np.asarray(spectrum.eigenvalues) if len(spectrum.basis) else np.ones(1)
        change = np.asarray(values, np.float64) - 1.0
        if not change.any():
            continue
        component = int(np.argmax(change**2 * variance))
        rows.append(
            {
                "unit": unit,
                "energy": energy_of(spectrum, change)
                if len(spectrum.basis)
                else float(change @ change),
                "component": component,
                "gain": float(values[component]),
                "mean_gain": float(np.mean(values)),
            }
        )
    return sorted(rows, key=lambda row: -row["energy"])[:top]
