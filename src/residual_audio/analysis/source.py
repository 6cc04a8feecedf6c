"""What the analysis needs of a store, and reading heads from it one site at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from residual_audio.direct.joint_arrays import JointSource
from residual_audio.direct.slot_maps import DirectSource
from residual_audio.metrics.moments import Moments
from residual_audio.metrics.validate import Array
from residual_audio.store.clips import ClipTable
from residual_audio.types import Head, Site


class Source(DirectSource, JointSource, Protocol):
    """The part of `residual_audio.store.Store` that the analysis reads."""

    @property
    def attention_sites(self) -> tuple[Site, ...]: ...
    @property
    def clips(self) -> ClipTable: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def has_text(self) -> bool: ...
    def has(self, name: str) -> bool: ...
    def heads(self, site: Site) -> Array: ...
    def w_out(self, site: Site) -> Array: ...
    def latent(self) -> Array: ...
    def embedding(self, unit: bool = True) -> Array: ...
    def moments(self, site: Site) -> Moments: ...
    @property
    def n_all(self) -> int: ...
    def clip_moments(self, site: Site) -> Moments | None: ...
    def texts(self) -> tuple[list[str], Array | None]: ...


@dataclass(frozen=True)
class SiteHeads:
    """All heads of one attention site."""

    site: Site
    heads: tuple[Head, ...]
    x: Array
    """[head, clip, d_head], raw: mean over tokens, before W_O."""
    w_out: Array
    """[head, d_head, width]"""

    @property
    def names(self) -> list[str]:
        return [str(head) for head in self.heads]


def each_site(store: Source) -> Iterator[SiteHeads]:
    """Sites in order of computation; one site's heads in memory at a time."""
    for site in store.attention_sites:
        if store.has(f"heads/{site}"):
            x = np.ascontiguousarray(np.moveaxis(store.heads(site), 1, 0))
            yield SiteHeads(site, site.heads, x, np.asarray(store.w_out(site)))


def clip_groups(store: Source) -> list[str]:
    """The group of each clip, or its own name: what is drawn together in a bootstrap."""
    ids, groups = store.clips["id"], store.clips["group"]
    return [str(i if g is None else g) for i, g in zip(ids, groups, strict=True)]


def clip_ids(store: Source) -> list[str]:
    return [str(name) for name in store.clips["id"]]
