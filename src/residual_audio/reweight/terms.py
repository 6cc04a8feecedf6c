"""Gains on the direct path: latent(λ) = latent + Σ_j (λ_j − 1) a_j φ_j, and nothing else to run.

a_j is a clip's coordinate along axis φ_j of a unit's contribution. With all coordinates in one
matrix [clip, component] and all axes in another [component, latent], a training step is one matrix
product. A coarse gain scales a whole centred contribution [clip, latent].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.models.linear import product
from residual_audio.reweight.axes import what_gains_move
from residual_audio.reweight.gains import check_gains
from residual_audio.reweight.uncorrelated import centre_of, readers_of
from residual_audio.types import FloatArray, Gains, Spectrum, Unit, parse_units

UNITS_AT_ONCE = 16
"""Whole contributions that are laid side by side at a time: a line of the cache."""


@dataclass(frozen=True)
class DirectTerms:
    """Everything that latents of any gains need, for a fixed set of clips and axes."""

    base: Tensor
    """[clip, D]: the latent; with `drop_mean`, the latent without the reweighted units."""
    amplitudes: Tensor
    """[clip, component]"""
    axes: Tensor
    """[component, D]"""
    whole: Tensor
    """[clip, D, coarse unit]: in this order a step reads it once, without a copy."""
    means: Tensor
    """[unit, D], means of the units whose mean has a gain: all of them, or none."""
    units: tuple[str, ...]
    sizes: tuple[int, ...]
    """Gains of each unit, in order; fine units come first."""
    spectra: Mapping[str, Spectrum]
    keep_mean: bool

    @property
    def n_gains(self) -> int:
        return sum(self.sizes) + len(self.means)

    def latent(self, gains: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """Latents [clip, D] of all gains in one vector [n_gains]; λ = 1 changes no bit."""
        scale = gains - (1.0 if self.keep_mean else 0.0)
        k, n = self.axes.shape[0], sum(self.sizes)
        out = self.base[rows]
        if k:
            out = out + (self.amplitudes[rows] * scale[:k]) @ self.axes
        if self.whole.shape[2]:
            out = out + self.whole[rows] @ scale[k:n]
        if len(self.means):
            out = out + scale[n:] @ self.means
        return out

    @cached_property
    def here(self) -> Tensor:
        """[clip, D]: latents at λ = 1."""
        return self.latent(torch.ones(self.n_gains, dtype=self.base.dtype))

    def shifted(self, x: FloatArray) -> Tensor:
        """Latents [clip, D] at λ = 1 + x; gains that stand at 1 cost nothing."""
        k, n = self.axes.shape[0], sum(self.sizes)
        change = torch.from_numpy(np.asarray(x)).to(self.base.dtype)
        out = self.here.clone()
        moved = torch.from_numpy(np.flatnonzero(x[:k]))
        if 2 * len(moved) > k:
            out += product(self.amplitudes * change[:k], self.axes.T)
        elif len(moved):
            out += product(self.amplitudes[:, moved] * change[moved], self.axes[moved].T)
        if self.whole.shape[2]:
            out += self.whole @ change[k:n]
        if len(self.means):
            out += change[n:] @ self.means
        return out

    def pulled(self, slope: Tensor) -> FloatArray:
        """The slope [gain] in λ of whatever has this slope [clip, D] in the latents."""
        parts = [(product(slope, self.axes) * self.amplitudes).sum(0)]
        if self.whole.shape[2]:
            # one product over what lies in memory as it is; einsum would turn it round first
            parts.append(slope.flatten() @ self.whole.flatten(0, 1))
        if len(self.means):
            parts.append(self.means @ slope.sum(0))
        return torch.cat(parts).numpy().astype(np.float64)

    def energy(self, metric: FloatArray) -> FloatArray:
        """[gain, gain]: x'Ex is the mean over clips of ‖latent(1 + x) − latent(1)‖² in a metric
        [D, D]. Coarse units count over some of the clips."""
        n = sum(self.sizes)
        every = np.arange(self.n_gains)
        ranked = every[(every < self.axes.shape[0]) | (every >= n)]
        found = _ranked_energy(*self._ranked(ranked), metric)
        if len(ranked) == len(every):
            return found
        out = np.zeros((len(every), len(every)))
        out[np.ix_(*[np.isin(every, ranked)] * 2)] = found
        rough = np.flatnonzero(~np.isin(every, ranked))
        some = self.whole[:: max(1, len(self.whole) // 32)]
        whole = some[:, :, every[rough] - self.axes.shape[0]].float()
        values, vectors = np.linalg.eigh(metric)
        root = torch.from_numpy(vectors * np.sqrt(values.clip(0))).float()
        seen = torch.einsum("de,ndu->neu", root, whole).flatten(0, 1)
        out[np.ix_(rough, rough)] = (seen.T @ seen / len(whole)).numpy()
        return out

    def _ranked(self, gains: np.ndarray) -> tuple[FloatArray, FloatArray]:
        """Amplitudes [clip, gain] and axes [gain, D]; a mean is an axis of amplitude 1."""
        n, k = sum(self.sizes), self.axes.shape[0]
        fine, means = gains[gains < k], gains[gains >= n] - n
        ones = np.ones((len(self.base), len(means)))
        amplitudes = np.concatenate([self.amplitudes.numpy()[:, fine], ones], 1)
        return amplitudes, np.concatenate([self.axes.numpy()[fine], self.means.numpy()[means]])

    def owner(self) -> np.ndarray:
        """[gain], number of its unit."""
        each = np.arange(len(self.units))
        return np.concatenate([np.repeat(each, self.sizes), each[: len(self.means)]])

    def weights(self) -> FloatArray:
        """[gain]: √ of the root mean square that goes through it, 1 on the average.

        Half-way between counting all gains alike and counting them by the change of the latent.
        """
        sizes = self.passing()
        return np.sqrt(np.maximum(sizes / np.sqrt((sizes**2).mean()), 1e-6))

    def passing(self) -> FloatArray:
        """[gain]: the root mean square of what goes through it."""
        sizes = [
            self.amplitudes.square().mean(0).sqrt(),
            self.whole.square().sum(1).mean(0).sqrt(),
            self.means.norm(dim=1),
        ]
        return torch.cat(sizes).numpy().astype(np.float64)

    def only(self, gains: np.ndarray) -> DirectTerms:
        """These gains alone, the others at 1: for the solver, which asks for no unit by name."""
        k, n = self.axes.shape[0], sum(self.sizes)
        fine = torch.from_numpy(gains[gains < k])
        rough = torch.from_numpy(gains[(gains >= k) & (gains < n)] - k)
        means = torch.from_numpy(gains[gains >= n] - n)
        return replace(
            self,
            base=self.here,
            amplitudes=self.amplitudes[:, fine],
            axes=self.axes[fine],
            whole=self.whole[:, :, rough],
            means=self.means[means],
            units=(),
            sizes=(len(fine), *(1 for _ in rough)),
            keep_mean=True,
        )

    def at(self, rows: npt.ArrayLike | Tensor) -> DirectTerms:
        """The same for these clips only, in this order."""
        index = torch.as_tensor(rows)
        return replace(
            self,
            base=self.base[index],
            amplitudes=self.amplitudes[index],
            whole=self.whole[index],
        )

    def double(self) -> DirectTerms:
        """The same in float64."""
        return replace(
            self,
            base=self.base.double(),
            amplitudes=self.amplitudes.double(),
            axes=self.axes.double(),
            whole=self.whole.double(),
            means=self.means.double(),
        )

    def vector(self, gains: Gains) -> Tensor:
        """Gains as one vector."""
        parts = [np.asarray(gains.gains[unit], np.float32) for unit in self.units]
        if len(self.means):
            parts.append(np.array([gains.means.get(u, 1.0) for u in self.units], np.float32))
        return torch.from_numpy(np.concatenate(parts))

    def gains(self, values: Tensor, fitted_on: Mapping[str, object] | None = None) -> Gains:
        """One vector as `Gains`."""
        found = values.detach().cpu().numpy().astype(np.float64)
        parts = np.split(found[: sum(self.sizes)], np.cumsum(self.sizes)[:-1])
        means = found[sum(self.sizes) :].tolist()
        return Gains(
            dict(zip(self.units, parts, strict=True)),
            dict(self.spectra),
            keep_mean=self.keep_mean,
            path="direct",
            fitted_on=dict(fitted_on or {}),
            means=dict(zip(self.units, means, strict=True)) if means else {},
        )


def _ranked_energy(amplitudes: FloatArray, axes: FloatArray, metric: FloatArray) -> FloatArray:
    """(a'a / n) ∘ (Φ G Φ'); float32 products do for a model of curvature."""
    a, axes = amplitudes.astype(np.float32), axes.astype(np.float32)
    along = axes @ metric.astype(np.float32) @ axes.T
    return ((a.T @ a) * along).astype(np.float64) / len(a)


def direct_terms(
    contributions: Contributions,
    spectra: Mapping[str, Spectrum],
    *,
    keep_mean: bool = True,
    mean_gains: bool = False,
) -> DirectTerms:
    """Coordinates of every clip along the axes of every unit."""
    if mean_gains and not keep_mean:
        raise InputError("gains of means make no sense where the mean is dropped")
    fine = [unit for unit, s in spectra.items() if len(s.basis)]
    rough = [unit for unit in spectra if unit not in set(fine)]
    units = dict(zip(spectra, parse_units(spectra, contributions.sites), strict=True))
    n, d = contributions.latent.shape
    for unit, spectrum in spectra.items():
        if np.shape(spectrum.mean) != (d,):
            raise InputError(
                f"the spectrum of '{unit}' has {np.size(spectrum.mean)} dimensions, the latent "
                f"{d}: it is not one of contributions to this latent"
            )
    base = contributions.latent.astype(np.float64) if not keep_mean else contributions.latent
    amplitudes = np.empty((n, sum(len(spectra[u].basis) for u in fine)), np.float32)
    start = 0
    for unit in fine:
        spectrum = spectra[unit]
        stop = start + len(spectrum.basis)
        axes = np.asarray(readers_of(spectrum)).T
        if units[unit].kind == "head":
            (head,) = units[unit].heads
            onto = contributions.operator(head).astype(np.float64) @ axes
            along = contributions.pools(head) @ onto
        else:
            along = what_gains_move(contributions, units[unit]) @ axes
        amplitudes[:, start:stop] = along - centre_of(spectrum) @ axes
        start = stop
    whole = _centred(contributions, {unit: (units[unit], spectra[unit]) for unit in rough})
    if not keep_mean:
        for unit in spectra:
            base = base - what_gains_move(contributions, units[unit])
    axes_all = [spectra[u].basis for u in fine] or [np.empty((0, d))]
    return DirectTerms(
        base=torch.from_numpy(np.array(base, np.float32)),
        amplitudes=torch.from_numpy(amplitudes),
        axes=torch.from_numpy(np.concatenate(axes_all).astype(np.float32)),
        whole=torch.from_numpy(whole),
        means=torch.from_numpy(
            np.stack([spectra[u].mean for u in (*fine, *rough)]).astype(np.float32)
            if mean_gains
            else np.empty((0, d), np.float32)
        ),
        units=(*fine, *rough),
        sizes=(*(len(spectra[u].basis) for u in fine), *(1 for _ in rough)),
        spectra=dict(spectra),
        keep_mean=keep_mean,
    )


def _centred(
    contributions: Contributions, units: Mapping[str, tuple[Unit, Spectrum]]
) -> npt.NDArray[np.float32]:
    """[clip, D, unit]: whole contributions without their means."""
    whole = np.empty((*contributions.latent.shape, len(units)), np.float32)
    every = list(units.values())
    for i in range(0, len(every), UNITS_AT_ONCE):
        some = every[i : i + UNITS_AT_ONCE]
        # in float32 throughout: a wider mean would make a wide copy of everything
        each = [
            what_gains_move(contributions, unit) - np.asarray(spectrum.mean, np.float32)
            for unit, spectrum in some
        ]
        whole[:, :, i : i + len(some)] = np.stack(each).transpose(1, 2, 0)
    return whole


def apply_direct(contributions: Contributions, gains: Gains) -> FloatArray:
    """Latents [clip, D] of any clips under fitted direct-path gains."""
    check_gains(gains)
    if gains.path != "direct":
        raise InputError("these gains act inside the network: run the encoder with them")
    terms = terms_of(contributions, gains)
    return terms.latent(terms.vector(gains)).numpy()


def terms_of(contributions: Contributions, gains: Gains) -> DirectTerms:
    """The terms that fitted gains act on."""
    return direct_terms(
        contributions, gains.spectra, keep_mean=gains.keep_mean, mean_gains=bool(gains.means)
    )


def terms_of_vectors(unit: str, vectors: FloatArray, spectrum: Spectrum) -> DirectTerms:
    """Terms of one unit that is all there is: any vectors [clip, d] and their spectrum."""
    n, d = vectors.shape
    along = (vectors - centre_of(spectrum)) @ readers_of(spectrum).T
    return DirectTerms(
        base=torch.from_numpy(np.array(vectors, np.float32)),
        amplitudes=torch.from_numpy(along.astype(np.float32)),
        axes=torch.from_numpy(np.asarray(spectrum.basis, np.float32)),
        whole=torch.empty(n, d, 0),
        means=torch.empty(0, d),
        units=(unit,),
        sizes=(len(spectrum.basis),),
        spectra={unit: spectrum},
        keep_mean=True,
    )
