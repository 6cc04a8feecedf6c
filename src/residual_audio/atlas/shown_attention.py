"""Where a head looks, small enough for a page: the mean map, and the sampled ones least like it.

Maps of long windows (1,500 tokens of Whisper, 1,212 of AST) would be megabytes each. Patches that
lie together in time and frequency are put together until at most `MOST_PATCHES` are left: of a
group of queries the mean, of a group of keys the sum, so that every row still sums to 1.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.atlas.packed import bytes_between
from residual_audio.store import Store
from residual_audio.types import FloatArray, Head

N_MAPS = 3
"""Sampled maps of a head beside its mean map."""
MOST_PATCHES = 144
"""Of a map, a side; windows of HTS-AT have 64."""

Grid = npt.NDArray[np.integer]


class AttentionMaps:
    """The maps of all heads of a store; those of a site are read once, since heads come by site."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: tuple[str, FloatArray, Grid] | None = None

    def of(self, head: Head) -> dict[str, Any] | None:
        """What the page of a head shows; None where no maps were captured."""
        site, found = self._store.site_of(head)
        name, places = f"attention/{site}/maps", f"grid/window/s{site.stage}"
        if not self._store.has(name) or places not in self._operators:
            return None
        grid = np.asarray(self._store.operator(places)).astype(int)
        groups, small = grouped(grid)
        if self._read is None or self._read[0] != name:
            maps = np.asarray(self._store.array(name), np.float32)
            at = np.asarray(self._store.array(f"{name}_at"))
            self._read = (name, maps, at)
        _, maps, at = self._read
        own = maps[:, found.head]
        if not len(own):
            return None
        own = put_together(own, groups)
        mean = own.mean(0)
        chosen = np.argsort(-np.abs(own - mean).sum((1, 2)))[:N_MAPS]  # least like the mean
        return {
            "grid": small.tolist(),
            "together": [int(n) for n in _factors(grid)],
            "n_maps": len(own),
            "mean": bytes_between(mean, 0.0, float(mean.max())),
            "samples": [
                {
                    "row": int(at[i, 0]),
                    "window": int(at[i, 1]),
                    "map": bytes_between(own[i], 0.0, float(own[i].max())),
                }
                for i in chosen
            ],
        }

    @cached_property
    def _operators(self) -> set[str]:
        return set(self._store.operator_names)


def _factors(grid: Grid) -> tuple[int, int]:
    """How many time steps and bands go together; frequency goes last, of which there is less."""
    placed = grid[(grid >= 0).all(1)]
    if not len(placed):
        return 1, 1
    times, bands = (int(n) + 1 for n in placed.max(0))
    by_time, by_band = 1, 1
    while -(-times // by_time) * -(-bands // by_band) > MOST_PATCHES:
        if -(-times // by_time) >= 2 * -(-bands // by_band) or by_band == bands:
            by_time += 1
        else:
            by_band += 1
    return by_time, by_band


def grouped(grid: Grid) -> tuple[Grid, Grid]:
    """Patches [patch, 2] by time and frequency → group of each patch, and [group, 2]; a token
    without a place (−1) is a group of its own."""
    small = np.where(grid >= 0, grid // np.array(_factors(grid)), -1)
    homeless = (grid < 0).any(1)
    key = np.column_stack([small, np.where(homeless, np.arange(len(grid)), -1)])
    _, first, groups = np.unique(key, axis=0, return_index=True, return_inverse=True)
    return groups.reshape(-1), small[first]


def put_together(maps: FloatArray, groups: Grid) -> FloatArray:
    """[map, query, key] → [map, group, group]: mean over queries, sum over keys."""
    n = int(groups.max()) + 1
    if n == len(groups):
        order = np.argsort(groups)
        return maps[:, order][:, :, order]
    belongs = (groups[:, None] == np.arange(n)).astype(np.float32)  # patch group
    found: FloatArray = np.einsum("qg,mqk,kh->mgh", belongs / belongs.sum(0), maps, belongs,
                                  optimize=True)  # fmt: skip
    return found
