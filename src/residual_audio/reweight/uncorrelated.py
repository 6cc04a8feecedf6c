"""Components of a unit that are uncorrelated over clips, along axes that need not be orthogonal.

A vector x, its mean included, is a sum of components: what a *reader* r reads of it times the axis
φ that it is written along,

    x = Σ (x r_i) φ_i,   r_i φ_j = 1 where i = j, else 0,   mean over clips of (x r_i)(x r_j) = 0

Principal components are the only ones that are uncorrelated along orthogonal axes. Give up the
second and any rotation of the whitened vectors will do: a faint component may then be written along
a strong axis, and what a gain of at most g does to the energy of a unit is bounded all the same,
by g² times that energy. Faint components (`FAINTEST`) count as stronger than they are in both.

Where classes are known, the mean is taken mostly of clips around the mean of their class. What
classes differ in then counts by how far they are apart, not by how much it varies in all, and
bounded gains reach it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.errors import InputError
from residual_audio.types import FloatArray, Spectrum

FAINTEST = 0.02
"""Of a unit's strongest component, in root mean square: what is fainter counts as so strong, or
noise would be read."""
FAINTEST_WITHIN = 0.15
"""The same within classes: what is fainter there helps little if it is written any louder, and it
harms what a model knew elsewhere."""
WITHIN = 0.9
"""The share of clips seen from the mean of their class in what components are uncorrelated over;
the rest are seen as they are, so that a class of few clips magnifies nothing beyond √10."""


@dataclass(frozen=True, repr=False)
class Uncorrelated(Spectrum):
    """Components of vectors themselves, not of their distance from the mean.

    `eigenvalues` are what goes through each: the mean of (x r)² ‖φ‖². The mean stands for its own
    gain only.
    """

    readers: FloatArray
    """[k, d]"""
    moment: FloatArray
    """[k, k]: the mean over all clips of (x r_i)(x r_j); diagonal where no classes were told."""


def uncorrelated(spectrum: Spectrum, within: FloatArray | None = None) -> Uncorrelated:
    """The same unit in whitened coordinates, the strongest components first.

    within [k, k]: covariance of coordinates along the axes, clips around the mean of their class.
    Coordinates are counted so that axes have a length of 1 on the (geometric) average.
    """
    basis = np.asarray(spectrum.basis, np.float64)
    inside = basis @ np.asarray(spectrum.mean, np.float64)
    moment = np.diag(np.asarray(spectrum.eigenvalues, np.float64)) + np.outer(inside, inside)
    seen = moment if within is None else WITHIN * within + (1 - WITHIN) * moment
    values, mix = np.linalg.eigh(seen)
    values, mix = values[::-1].clip(0), mix[:, ::-1].T
    faintest = FAINTEST if within is None else FAINTEST_WITHIN
    lengths = np.sqrt(np.maximum(values, faintest**2 * max(float(values[0]), 1e-300)))
    lengths = lengths / np.exp(np.log(lengths).mean())
    axes, moment = mix @ basis, mix @ moment @ mix.T
    return Uncorrelated(
        spectrum.mean,
        axes * lengths[:, None],
        np.diagonal(moment).clip(0),
        spectrum.n,
        readers=axes / lengths[:, None],
        moment=moment / np.outer(lengths, lengths),
    )


def within_classes(coordinates: FloatArray, codes: np.ndarray) -> FloatArray:
    """Covariance [k, k] of coordinates [clip, k] around the means of classes."""
    _, number, count = np.unique(codes, return_inverse=True, return_counts=True)
    if len(codes) <= len(count):
        raise InputError(
            "no class has two clips, so nothing varies within one: whiten over all clips"
        )
    sums = np.zeros((len(count), coordinates.shape[1]))
    np.add.at(sums, number, coordinates)
    centred = coordinates - (sums / count[:, None])[number]
    found: FloatArray = centred.T @ centred / (len(codes) - len(count))
    return found


def turned(spectrum: Spectrum, mix: FloatArray) -> Spectrum:
    """The same in other coordinates; `mix` [new, old] has orthonormal rows."""
    basis = mix @ np.asarray(spectrum.basis)
    values = np.asarray(spectrum.eigenvalues)
    if not isinstance(spectrum, Uncorrelated):
        return Spectrum(spectrum.mean, basis, mix**2 @ values, spectrum.n)
    moment = mix @ spectrum.moment @ mix.T
    through = np.diagonal(moment) * np.square(basis).sum(1)
    return Uncorrelated(spectrum.mean, basis, through, spectrum.n, mix @ spectrum.readers, moment)


def readers_of(spectrum: Spectrum) -> FloatArray:
    """[k, d]: what is read of a vector; along orthonormal axes, those themselves."""
    return spectrum.readers if isinstance(spectrum, Uncorrelated) else spectrum.basis


def centre_of(spectrum: Spectrum) -> FloatArray:
    """[d]: what is taken away before anything is read."""
    if isinstance(spectrum, Uncorrelated):
        return np.zeros_like(np.asarray(spectrum.mean))
    return spectrum.mean


def moment_of(spectrum: Spectrum) -> FloatArray:
    """[k, k]: the mean over clips of what two readers read, as a product; variances as a rule."""
    if isinstance(spectrum, Uncorrelated):
        return np.asarray(spectrum.moment, np.float64)
    return np.diag(np.asarray(spectrum.eigenvalues, np.float64).clip(0))


def energy_of(spectrum: Spectrum, change: FloatArray) -> float:
    """The mean square of Σ c_i (x r_i) φ_i: what a change c of the gains does to the unit."""
    if not isinstance(spectrum, Uncorrelated):
        return float(np.square(change) @ np.asarray(spectrum.eigenvalues, np.float64).clip(0))
    basis = np.asarray(spectrum.basis, np.float64)
    return float(change @ (moment_of(spectrum) * (basis @ basis.T)) @ change)
