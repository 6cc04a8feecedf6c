"""Components of a unit that are uncorrelated over clips, along axes that need not be orthogonal.

A vector x, its mean included, is a sum of components: what a *reader* r reads of it times the axis
φ that it is written along,

    x = Σ (x r_i) φ_i,   r_i φ_j = 1 where i = j, else 0,   mean over clips of (x r_i)(x r_j) = 0

Principal components are the only ones that are uncorrelated along orthogonal axes. Give up the
second and any rotation of the whitened vectors will do: a faint component may then be written along
a strong axis, and what a gain of at most g does to the energy of a unit is bounded all the same,
by g² times that energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from residual_audio.types import FloatArray, Spectrum

FAINTEST = 0.02
"""Of a unit's strongest component: what is fainter counts as so strong, or noise would be read."""


@dataclass(frozen=True, repr=False)
class Uncorrelated(Spectrum):
    """Components of vectors themselves, not of their distance from the mean.

    `eigenvalues` are what goes through each: the mean of (x r)² ‖φ‖². The mean stands for its own
    gain only.
    """

    readers: FloatArray
    """[k, d]"""


def uncorrelated(spectrum: Spectrum) -> Uncorrelated:
    """The same unit in whitened coordinates, principal axes of its second moment first.

    Coordinates are counted so that axes have a length of 1 on the (geometric) average.
    """
    basis = np.asarray(spectrum.basis, np.float64)
    inside = basis @ np.asarray(spectrum.mean, np.float64)
    moment = np.diag(np.asarray(spectrum.eigenvalues, np.float64)) + np.outer(inside, inside)
    values, mix = np.linalg.eigh(moment)
    values, axes = values[::-1].clip(0), mix[:, ::-1].T @ basis
    lengths = np.sqrt(np.maximum(values, FAINTEST**2 * max(float(values[0]), 1e-300)))
    lengths = lengths / np.exp(np.log(lengths).mean())
    return Uncorrelated(
        spectrum.mean,
        axes * lengths[:, None],
        values,
        spectrum.n,
        readers=axes / lengths[:, None],
    )


def turned(spectrum: Spectrum, mix: FloatArray) -> Spectrum:
    """The same in other coordinates; `mix` [new, old] has orthonormal rows."""
    basis = mix @ np.asarray(spectrum.basis)
    values = np.asarray(spectrum.eigenvalues)
    if not isinstance(spectrum, Uncorrelated):
        return Spectrum(spectrum.mean, basis, mix**2 @ values, spectrum.n)
    read = values / np.square(spectrum.basis).sum(1)  # mean of (x r)²
    through = (mix**2 @ read) * np.square(basis).sum(1)
    return Uncorrelated(spectrum.mean, basis, through, spectrum.n, mix @ spectrum.readers)


def readers_of(spectrum: Spectrum) -> FloatArray:
    """[k, d]: what is read of a vector; along orthonormal axes, those themselves."""
    return spectrum.readers if isinstance(spectrum, Uncorrelated) else spectrum.basis


def centre_of(spectrum: Spectrum) -> FloatArray:
    """[d]: what is taken away before anything is read."""
    if isinstance(spectrum, Uncorrelated):
        return np.zeros_like(np.asarray(spectrum.mean))
    return spectrum.mean
