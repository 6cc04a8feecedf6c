"""The same analysis of heads in another space than their own.

    raw         what a head gives, before W_O: d_head dimensions
    projected   what it adds to the residual stream, after W_O. Its rank is at most d_head, so all
                spectra and distances are those of R L with W Wᵀ = L Lᵀ: no wide matrix is needed
    joint       what it adds to the joint embedding: its exact contribution to the latent (direct
                path), through the joint head's derivative at the mean clip

A store seen in another space answers like a store; every table and figure is then of that space.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from residual_audio.analysis.analysis import Options
from residual_audio.analysis.source import Source
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.errors import InputError
from residual_audio.metrics.spectra import isometry
from residual_audio.metrics.validate import Array
from residual_audio.types import Site

Space = Literal["raw", "projected", "joint"]
SPACES: tuple[Space, ...] = ("raw", "projected", "joint")


RAW_ONLY = frozenset({"projected", "tokens", "pooling", "words", "units", "attention"})
"""Parts of an analysis that say nothing new, or nothing, in another space."""


def parts_in(options: Options, space: Space) -> Options:
    """What can be asked of heads in this space."""
    return options if space == "raw" else replace(options, parts=options.parts - RAW_ONLY)


def in_space(store: Source, space: Space) -> Source:
    """The store itself, or its heads in another space."""
    if space == "raw":
        return store
    if space == "projected":
        return cast(Source, _Projected(store))
    if space == "joint":
        return cast(Source, _InJoint(store))
    raise InputError(f"'{space}' is no space of heads: use {', '.join(SPACES)}")


class _Seen:
    """A store but for its heads; all else is asked of the store."""

    def __init__(self, store: Source) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def n_all(self) -> int:
        return len(self._store.clips)

    def clip_moments(self, site: Site) -> None:
        """Those of a large store are of another space."""


class _Projected(_Seen):
    def w_out(self, site: Site) -> Array:
        """From a head's own axes to the stream: L⁻¹ W, whose rows are orthonormal."""
        w = np.asarray(self._store.w_out(site), np.float64)
        return np.linalg.pinv(isometry(w)) @ w

    def heads(self, site: Site) -> Array:
        root = isometry(np.asarray(self._store.w_out(site)))  # head, d_head, d_head
        x = np.asarray(self._store.heads(site), np.float64)  # clip, head, d_head
        return np.einsum("chd,hde->che", x, root)


class _InJoint(_Seen):
    """Contributions live in at most as many dimensions as a head has slots times its width."""

    def __init__(self, store: Source) -> None:
        super().__init__(store)
        self._contributions  # noqa: B018, an old store says at once that it lacks the direct path

    @cached_property
    def _contributions(self) -> Contributions:
        rows = np.arange(len(self._store.clips))
        return Contributions(self._store, rows, dtype=np.float32)

    @cached_property
    def _step(self) -> Array:
        """[latent, joint]"""
        return joint_of(self._store).derivative(self._contributions.latent.mean(0)[None])

    @property
    def attention_sites(self) -> tuple[Site, ...]:
        d = int(self._step.shape[1])
        return tuple(replace(s, d_head=d) for s in self._store.attention_sites)

    def w_out(self, site: Site) -> Array:
        """Heads are where they were going already."""
        d = int(self._step.shape[1])
        return np.broadcast_to(np.eye(d), (site.n_heads, d, d))

    def heads(self, site: Site) -> Array:
        return np.stack([self._contributions.head(h) @ self._step for h in site.heads], axis=1)
