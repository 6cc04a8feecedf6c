"""The axes that gains act along: spectra of units, how many components to keep, control axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.metrics.spectra import fit_spectrum, pca_dimension
from residual_audio.reweight.gains import coarse
from residual_audio.types import FloatArray, Head, Site, Spectrum, Unit, units_of

Index = npt.NDArray[np.integer] | slice
Axes = Literal["pca", "rotated", "random", "learned"]
"""`rotated`: the same subspace, axes turned at random; `random`: random directions of the space;
`learned`: the same subspace, axes learned together with the gains (see `learned_axes`)."""


@dataclass(frozen=True)
class Components:
    """How many components of each unit receive a gain."""

    k: int | None = None
    """At most this many (None: as many as the unit has)."""
    evr: float | None = None
    """The fewest that explain this share of the variance."""
    coarse: bool = False
    """One gain for the whole unit."""

    def __str__(self) -> str:
        if self.coarse:
            return "coarse"
        parts = [f"k={self.k}" if self.k else "", f"evr={self.evr:g}" if self.evr else ""]
        return ",".join(part for part in parts if part) or "all"

    @classmethod
    def parse(cls, text: str) -> Components:
        """Read `all`, `coarse`, `16`, `0.9`, `k=16`, `evr=0.9` or `k=16,evr=0.99`."""
        text = text.strip().lower()
        if text in ("all", "coarse"):
            return cls(coarse=text == "coarse")
        k, evr = None, None
        for part in text.split(","):
            name, _, value = part.rpartition("=")
            try:
                number = float(value)
            except ValueError:
                number = float("nan")
            if name in ("", "k") and number >= 1 and number == int(number):
                k = int(number)
            elif name in ("", "evr") and 0 < number < 1:
                evr = number
            else:
                raise InputError(
                    f"'{text}' says not how many components to keep: write all, coarse, a number "
                    "like 16, or a share of the variance like 0.9"
                )
        return cls(k, evr)

    def of(self, spectrum: Spectrum) -> Spectrum:
        """The part of a spectrum that is kept."""
        if self.coarse:
            return coarse(spectrum)
        values = np.asarray(spectrum.eigenvalues)
        # a direction with no variance in the fitting set has no defined axis
        keep = int((values > 1e-10 * max(values[0], 1e-300)).sum()) if len(values) else 0
        if self.k is not None:
            keep = min(keep, self.k)
        if self.evr is not None and keep:
            keep = min(keep, int(pca_dimension(values, self.evr)))
        return replace(
            spectrum, basis=spectrum.basis[:keep], eigenvalues=spectrum.eigenvalues[:keep]
        )


ALL = Components()


def kept_parts(spectra: Mapping[str, Spectrum], components: Components) -> dict[str, Spectrum]:
    """The kept part of every spectrum; a constant unit has nothing to weigh and is left out."""
    kept = {unit: components.of(spectrum) for unit, spectrum in spectra.items()}
    kept = {unit: s for unit, s in kept.items() if components.coarse or len(s.basis)}
    if not kept:
        raise InputError("every unit is constant over these clips: there is nothing to reweight")
    return kept


def chosen_units(
    sites: Sequence[Site], level: str, stages: Iterable[int] | None = None
) -> tuple[Unit, ...]:
    """Every `head`, `attention`, `mlp`, `stage` or `output` unit of these stages, in order."""
    wanted = None if stages is None else set(stages)
    known = {site.stage for site in sites}
    if wanted is not None and not wanted <= known:
        raise InputError(f"there is no stage {min(wanted - known)}: stages are {sorted(known)}")
    everywhere = units_of(sites, level)
    if wanted is None or level == "output":
        return everywhere
    return tuple(unit for unit in everywhere if unit.stage in wanted)


def direct_spectra(
    contributions: Contributions,
    units: Sequence[Unit],
    rows: Index = slice(None),
    *,
    to_be_cut: bool = False,
) -> dict[str, Spectrum]:
    """Centred PCA of each unit's contribution to the latent over the clips `rows`, by name.

    With `to_be_cut` a head has all eigenvalues, and only as many axes as it has dimensions, and
    other units no axes without variance: for `Components`, which keeps no more of them.
    """
    found = {}
    for unit in units:
        if unit.kind == "head":
            (head,) = unit.heads
            spectrum = _projected(contributions, head, rows, unit.width if to_be_cut else None)
        else:
            moved = what_gains_move(contributions, unit)[rows]
            few = to_be_cut and 1 < len(moved) <= moved.shape[1]
            spectrum = _of_few(moved.astype(np.float64), None) if few else fit_spectrum(moved)
        found[unit.name] = spectrum
    return found


def what_gains_move(contributions: Contributions, unit: Unit) -> FloatArray:
    """[clip, D]: what the unit adds to the latent as far as its gains act on it.

    Those of a stage act at every attention of it and leave its MLPs alone, unlike
    `Contributions.of`, which has both.
    """
    if unit.kind == "output":
        return contributions.latent
    if unit.kind == "stage":
        sites = attention_of(unit, contributions.sites)
        return np.sum([contributions.site(site) for site in sites], axis=0)
    return contributions.of(unit)


def attention_of(unit: Unit, sites: Sequence[Site]) -> list[Site]:
    """Where the gains of a stage act: at every attention of it, in order of computation."""
    return [site for site in sites if site in unit.sites and site.kind == "attention"]


def _projected(
    contributions: Contributions, head: Head, rows: Index, n_axes: int | None = None
) -> Spectrum:
    """Spectrum of pools times operator, by algebra in the smallest of clips and the two widths;
    only the first axes are formed, if asked."""
    pools, operator = contributions.pools(head)[rows], contributions.operator(head)
    r, d = operator.shape
    if len(pools) < 2:
        raise InputError(f"a spectrum needs at least 2 clips, there are {len(pools)}")
    if len(pools) <= min(r, d):
        return _of_few(pools.astype(np.float64) @ operator, n_axes)
    if r >= d:
        whole = fit_spectrum(pools @ operator)
        return replace(whole, basis=np.array(whole.basis[:n_axes]))
    # operator = L Q with orthonormal rows Q: the spectrum of pools @ L, its axes carried by Q
    q, upper = contributions.factors(head)
    inner = fit_spectrum(pools.astype(np.float64) @ upper.T)
    return Spectrum(inner.mean @ q.T, inner.basis[:n_axes] @ q.T, inner.eigenvalues, inner.n)


def _of_few(x: FloatArray, n_axes: int | None) -> Spectrum:
    """Spectrum of fewer clips than dimensions, from their products: axes without variance, which
    no clip defines, are left out."""
    mean = x.mean(0)
    y = x - mean
    values, vectors = np.linalg.eigh(y @ y.T)
    values, vectors = values[:0:-1], vectors[:, :0:-1]  # centred: one direction is always empty
    seen = values > 1e-13 * max(float(values[0]), 1e-300)
    values, vectors = values[seen], vectors[:, seen][:, :n_axes]
    basis = vectors.T @ y / np.sqrt(values[:n_axes])[:, None]
    # small components come out a little askew to each other: rounding, as a share of their size
    q, upper = np.linalg.qr(basis.T)
    basis = np.ascontiguousarray(q.T) * np.sign(np.diagonal(upper))[:, None]
    return Spectrum(mean, basis, values / (len(x) - 1), len(x))


def network_spectra(
    vectors: Callable[[Unit], FloatArray], units: Sequence[Unit], rows: Index
) -> dict[str, Spectrum]:
    """Spectra of pooled vectors: `vectors(unit)` gives [clip, d] in the space that is edited.

    Those of a stage are [block, clip, d]: the blocks share one basis.
    """
    found = {}
    for unit in units:
        own = vectors(unit)
        if unit.kind == "stage":
            own = own[:, rows].reshape(-1, own.shape[-1])
            found[unit.name] = fit_spectrum(own)
        else:
            found[unit.name] = fit_spectrum(own[rows])
    return found


def turn(spectra: Mapping[str, Spectrum], axes: Axes, seed: int = 0) -> dict[str, Spectrum]:
    """Control axes in place of the principal ones; means and numbers of components stay."""
    if axes in ("pca", "learned"):
        return dict(spectra)
    rng = np.random.default_rng(seed)
    out = {}
    for unit, spectrum in spectra.items():
        k, d = spectrum.basis.shape
        mix = np.linalg.qr(rng.normal(size=(k, k) if axes == "rotated" else (d, k)))[0]
        basis = mix @ spectrum.basis if axes == "rotated" else mix.T
        # variance along the new axes, as far as the kept components know it
        along = (basis @ spectrum.basis.T) ** 2 @ spectrum.eigenvalues
        out[unit] = replace(spectrum, basis=basis, eigenvalues=along)
    return out
