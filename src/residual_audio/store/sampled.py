"""A store too large to hold: a declared sample of its clips, and moments of all of them.

Each array is read once, shard by shard; of the rows only those of the sample stay. Head outputs of
all clips go into mean and scatter on the way, so that spectra are of every clip.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.metrics.moments import Moments, merge_all
from residual_audio.store.clips import ClipTable
from residual_audio.store.reader import Store
from residual_audio.store.shards import is_sampled
from residual_audio.store.tensors import Array
from residual_audio.types import Site

MOST_HELD = 20_000
"""Clips whose arrays are held in memory at a time: 350 MB of head outputs of HTS-AT tiny."""


def sampled(store: Store, seed: int = 0, most: int = MOST_HELD) -> Store:
    """The store itself where it is small, else `most` of its clips drawn by the seed."""
    if len(store) <= most:
        return store
    drawn = np.random.default_rng(seed).choice(len(store), most, replace=False)
    return SampledStore(store, np.sort(drawn))


class SampledStore(Store):
    """Reads like a store of the sampled clips; `clip_moments` are of all."""

    def __init__(self, store: Store, rows: npt.NDArray[np.int64]) -> None:
        super().__init__(store.folder, store.manifest)
        self._whole, self._rows = store, rows
        self._arrays: dict[str, Array] = {}
        self._moments: dict[str, Moments] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def n_all(self) -> int:
        return len(self._whole)

    @cached_property
    def clips(self) -> ClipTable:
        return self._whole.clips.where(self._rows)

    @property
    def has_windows(self) -> bool:
        return self._whole.has_windows

    def clip_moments(self, site: Site | str) -> Moments:
        name = f"heads/{self.site(site)}"
        self.array(name)
        return self._moments[name]

    def array(self, name: str, rows: Array | slice | None = None) -> Array:
        if name not in self._arrays:
            if name.startswith("moments/"):
                raise InputError("moments are merged, not joined: use store.moments(site)")
            self._arrays[name] = np.concatenate(list(self.pieces(name)))
        whole = self._arrays[name]
        return whole if rows is None else whole[rows]

    def pieces(self, name: str) -> Iterator[Array]:
        if name.startswith("moments/"):
            yield from self._whole.pieces(name)
        elif is_sampled(name):
            yield self._declared(name)
        else:
            yield from self._drawn(name)

    def _drawn(self, name: str) -> Iterator[Array]:
        first, parts = 0, []
        for piece in self._whole.pieces(name):
            if name.startswith("heads/"):
                parts.append(Moments.of(np.moveaxis(piece, 0, -2)))
                if len(parts) == 64:  # a tree of few branches: memory stays that of one piece
                    parts = [merge_all(parts)]
            last = first + len(piece)
            mine = self._rows[np.searchsorted(self._rows, first) :]
            yield piece[mine[: np.searchsorted(mine, last)] - first]
            first = last
        if parts:
            self._moments[name] = merge_all(parts)

    def _declared(self, name: str) -> Array:
        """Arrays of some clips only: those whose clip is in the sample."""
        of = name if name.endswith("_at") else f"{name}_at"
        at = self._whole.array(of)
        rows = at if at.ndim == 1 else at[:, 0]
        place = np.searchsorted(self._rows, rows)
        known = self._rows[np.minimum(place, len(self._rows) - 1)] == rows
        if name != of:
            return self._whole.array(name)[known]
        found = at[known].copy()
        if at.ndim == 1:
            return place[known].astype(at.dtype)
        found[:, 0] = place[known]
        return found
