"""A store of windows seen clip by clip: every row is the mean over the windows of one recording.

Head outputs are means over tokens, so their mean over windows is that over the whole recording; the
direct path is linear, so what units add still sums to the latent. The joint embedding is the mean
of the windows' unit vectors, as everywhere a long clip has one vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from residual_audio.store.clips import ClipTable, Column
from residual_audio.store.reader import Store
from residual_audio.store.shards import is_sampled
from residual_audio.store.tensors import Array


def by_clip(store: Store) -> Store:
    """One row a recording; the store itself where it has no windows."""
    return ClipMeans(store) if store.has_windows else store


def owners_of(clips: ClipTable) -> npt.NDArray[np.int64]:
    """Number of the recording that each row is from, in order of their first rows."""
    names = recordings_of(clips)
    first: dict[str, int] = {}
    return np.array([first.setdefault(name, len(first)) for name in names], np.int64)


def recordings_of(clips: ClipTable) -> list[str]:
    """The recording that each row is from."""
    return [str(p or i) for p, i in zip(clips["part_of"], clips["id"], strict=True)]


def n_recordings(store: Store) -> int:
    """Clips that rows are of: fewer than rows, where rows are windows."""
    return len(by_clip(store))


class ClipMeans(Store):
    """Reads like a store that has one row a recording."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.folder, store.manifest)
        self._windows = store

    @cached_property
    def _owners(self) -> npt.NDArray[np.int64]:
        return owners_of(self._windows.clips)

    @cached_property
    def clips(self) -> ClipTable:
        windows = self._windows.clips
        first = np.unique(self._owners, return_index=True)[1]
        rows = windows.where(first)
        columns: dict[str, Column] = {name: rows[name] for name in rows.columns}
        columns["id"] = np.array(recordings_of(rows), dtype=object)
        none = np.full(len(rows), None, dtype=object)
        return ClipTable(columns | {"part_of": none, "start_s": none})

    def __len__(self) -> int:
        return int(self._owners.max()) + 1 if len(self._owners) else 0

    @property
    def has_windows(self) -> bool:
        return False

    def pieces(self, name: str) -> Iterator[Array]:
        if name.startswith("moments/"):
            yield from super().pieces(name)
            return
        if is_sampled(name):
            for piece in super().pieces(name):
                yield self._at_clips(piece) if name.endswith("_at") else piece
            return
        yield from self._means(name)

    def _at_clips(self, at: Array) -> Array:
        found = at.copy()
        if at.ndim == 1:
            return self._owners[at].astype(at.dtype)
        found[:, 0] = self._owners[at[:, 0]]
        return found

    def _means(self, name: str) -> Iterator[Array]:
        """Shard by shard; a recording that goes on in the next one waits for it."""
        counts = np.bincount(self._owners, minlength=len(self))
        dtype = np.dtype(self.manifest["arrays"][name]["dtype"])
        row, waiting = 0, None
        for piece in super().pieces(name):
            if name == "embedding/joint":
                norms = np.linalg.norm(piece, axis=1, keepdims=True)
                piece = piece / np.maximum(norms, 1e-12)
            owners = self._owners[row : row + len(piece)]
            row += len(piece)
            starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
            sums = np.add.reduceat(piece.astype(np.float64), starts, axis=0)
            numbers = owners[starts]
            if waiting is not None and waiting[0] == numbers[0]:
                sums[0] += waiting[1]
            elif waiting is not None:
                sums = np.concatenate([waiting[1][None], sums])
                numbers = np.r_[waiting[0], numbers]
            waiting = (numbers[-1], sums[-1])
            yield _shares(sums[:-1], counts[numbers[:-1]]).astype(dtype)
        if waiting is not None:
            yield _shares(waiting[1][None], counts[[waiting[0]]]).astype(dtype)


def _shares(sums: Array, counts: npt.NDArray[np.int64]) -> Array:
    return sums / counts.reshape(-1, *([1] * (sums.ndim - 1)))
