"""Leading components of every head, in one basis for clips, words, patches and sliders.

A component is a principal direction of what the head adds to the latent (its direct contribution),
so that its words, the clips at its ends, where in a clip it responds and what a gain on it does
are about the same thing. Where the direct path was not captured, components are those of the
head's pooled output, without words and sliders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from residual_audio.analysis.description import N_DRAWS, N_ENTRIES, joint_derivative
from residual_audio.direct.contributions import Contributions
from residual_audio.engine.jobs import on_cores
from residual_audio.metrics.pursuit import (
    centre_dictionary,
    coherence,
    matching_pursuit,
    random_directions,
)
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight.axes import Components, direct_spectra
from residual_audio.store import Store
from residual_audio.types import FloatArray, Head, Spectrum, Unit, units_of

N_COMPONENTS = 3
"""Shown for each head."""
N_CLIPS = 4
"""Shown at each end of a component."""
AT_CHANCE = 2.0
"""Standard deviations above random directions, below which words are greyed."""


@dataclass(frozen=True)
class HeadComponents:
    """Components of one head over all clips."""

    head: Head
    spectrum: Spectrum
    """All components that vary, largest first."""
    coordinates: FloatArray
    """[clip, component], centred."""

    @property
    def shares(self) -> FloatArray:
        total = float(self.spectrum.eigenvalues.sum())
        return self.spectrum.eigenvalues / total if total > 0 else self.spectrum.eigenvalues

    @property
    def n_shown(self) -> int:
        return min(N_COMPONENTS, len(self.spectrum.basis))

    def ends(self, component: int, n_clips: int = N_CLIPS) -> dict[str, list[int]]:
        """The clips furthest along + and −, furthest first; no clip stands at both ends."""
        order = np.argsort(self.coordinates[:, component], kind="stable")
        n = min(n_clips, len(order) // 2)
        return {"+": order[::-1][:n].tolist(), "-": order[:n].tolist()}


@dataclass(frozen=True)
class EndWords:
    """What one end of a component says, and how far above random directions that is."""

    texts: tuple[str, ...]
    fit_z: float
    coherence_z: float

    @property
    def at_chance(self) -> bool:
        return min(self.fit_z, self.coherence_z) < AT_CHANCE


class ComponentsOfRun:
    """Components of the heads of a store, one head at a time."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.direct = "direct" in store.kinds and store.joint is not None
        self._heads: dict[str, HeadComponents] = {}

    @cached_property
    def contributions(self) -> Contributions:
        return Contributions(self.store)

    def __getitem__(self, head: Head) -> HeadComponents:
        name = str(head)
        if name not in self._heads:
            self._heads[name] = self._direct(head) if self.direct else self._pooled(head)
        return self._heads[name]

    def all(self) -> list[HeadComponents]:
        """Every head, in order of computation."""
        missing = [h for h in self.store.all_heads if str(h) not in self._heads]
        found = on_cores(self._direct if self.direct else self._pooled, missing)
        self._heads |= {str(h): c for h, c in zip(missing, found, strict=True)}
        return [self._heads[str(head)] for head in self.store.all_heads]

    def _direct(self, head: Head) -> HeadComponents:
        unit = self._units[str(head)]
        spectrum = Components().of(direct_spectra(self.contributions, [unit])[unit.name])
        onto = self.contributions.operator(head).astype(np.float64) @ spectrum.basis.T
        along = self.contributions.pools(head) @ onto - spectrum.mean @ spectrum.basis.T
        return HeadComponents(head, spectrum, along)

    def _pooled(self, head: Head) -> HeadComponents:
        site, found = self.store.site_of(head)
        cloud = np.asarray(self.store.heads(site)[:, found.head], np.float64)
        spectrum = Components().of(fit_spectrum(cloud))
        return HeadComponents(head, spectrum, (cloud - spectrum.mean) @ spectrum.basis.T)

    @cached_property
    def _units(self) -> dict[str, Unit]:
        return {unit.name: unit for unit in units_of(self.store.sites, "head")}


def words_of(components: ComponentsOfRun, seed: int = 0) -> dict[str, list[dict[str, EndWords]]]:
    """Head → for each shown component, the words of both ends; empty where there are no texts."""
    store = components.store
    texts, embeddings = store.texts()
    if embeddings is None or not components.direct or len(texts) < 2 * N_ENTRIES:
        return {}
    dictionary = centre_dictionary(embeddings)
    derivative, _ = joint_derivative(store, seed=seed)
    rng = np.random.default_rng(seed)
    draws = random_directions(dictionary, N_DRAWS, rng)
    fits = np.array([matching_pursuit(v, dictionary, N_ENTRIES).fit for v in draws])
    alike = np.array([coherence(v, dictionary, N_ENTRIES) for v in draws])

    def end(direction: FloatArray) -> EndWords:
        found = matching_pursuit(direction, dictionary, N_ENTRIES)
        same = coherence(direction, dictionary, N_ENTRIES)
        return EndWords(
            tuple(texts[i] for i in found.entries),
            float((found.fit - fits.mean()) / fits.std()),
            float((same - alike.mean()) / alike.std()),
        )

    def both(one: HeadComponents) -> list[dict[str, EndWords]]:
        steps = one.spectrum.basis[: one.n_shown] @ derivative  # component joint
        return [{"+": end(step), "-": end(-step)} for step in steps]

    heads = components.all()
    return {str(h.head): w for h, w in zip(heads, on_cores(both, heads), strict=True)}


@dataclass(frozen=True)
class Pointed:
    """A clip that stands at an end of a component of a head."""

    head: Head
    component: int
    """Counted from 0."""
    sign: str
    row: int


def pointed_clips(components: ComponentsOfRun, n_clips: int = N_CLIPS) -> list[Pointed]:
    """Every clip that a head's page shows, in the order in which it shows them."""
    return [
        Pointed(one.head, c, sign, row)
        for one in components.all()
        for c in range(one.n_shown)
        for sign, rows in one.ends(c, n_clips).items()
        for row in rows
    ]


def most_pointed(pointed: Sequence[Pointed], n: int) -> list[int]:
    """At most n clips: all firsts at an end before all seconds, so that no head goes without."""
    order: dict[int, None] = {}
    ranked: dict[tuple[str, int, str], int] = {}
    queue: list[tuple[int, int, int]] = []
    for place, one in enumerate(pointed):
        key = (str(one.head), one.component, one.sign)
        ranked[key] = ranked.get(key, -1) + 1
        queue.append((one.component, ranked[key], place))
    for _, _, place in sorted(queue):
        order.setdefault(pointed[place].row)
    return list(order)[:n]
