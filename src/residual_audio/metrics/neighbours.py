"""Exact nearest neighbours of many small clouds: one search that every local estimator reads.

How it is fast and still exact. With the cloud centred, a float32 product gives for every pair a
*lower bound* of the squared distance, |x−y|² ≥ (1−ε)(|x|²+|y|²) − 2x·y, where ε covers all rounding
of the product. The candidates of x are the pairs whose bound is below a threshold T that at least
k pairs reach; their distances are computed again from differences in float64. If the k-th of these
is at most T, no other point can be nearer, and the row is proved. Rows that are not (tight
clusters far apart, many ties) are searched again with a float64 product, then by brute force.

Points are excluded by index, never by distance. Duplicates are dropped and counted: a distance of
zero says nothing about dimension and ruins every estimator that divides by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.validate import (
    Array,
    as_heads,
    check_finite,
    input_resolution,
    power_of_two_scale,
)

Made = TypeVar("Made")
_MARGIN = 2  # candidates beyond k: room for bounds that are a little below the distances
_GROUPS = 128  # partial minima a row; their c-th smallest bounds the c-th smallest of the row
_BLOCK_BYTES = 2**21  # one block of bounds: near the cores, and few calls for threads to meet at


@dataclass(frozen=True)
class Distances:
    """Distances to the k nearest neighbours of each clip of each head, with what to doubt."""

    values: Array
    """[head, clip, k] float64, rising; a row of NaN where the clip was dropped as a duplicate."""
    resolution: Array
    """[head, clip]: differences below this are rounding of the input."""
    n: Array
    """[head]: clips left after duplicates were dropped."""
    duplicates: Array
    """[head]: clips dropped."""
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def k(self) -> int:
        return int(self.values.shape[-1])

    def once(self, name: str, work: Callable[[], Made]) -> Made:
        """What several estimators make of the distances, made by the first that asks."""
        if name not in self._known:
            self._known[name] = work()
        found: Made = self._known[name]
        return found


def neighbour_distances(
    x: Array,
    k: int = 20,
    *,
    transform: Array | None = None,
    heads: Sequence[object] | None = None,
    clips: Sequence[object] | None = None,
) -> Distances:
    """Distances to the k nearest neighbours: [head, clip, d] → `Distances`.

    transform: [head, d, m], applied to each head in float64 (the isometry of a projection);
    duplicates are still judged on the vectors as given. heads, clips: names for error messages.
    Where fewer than k + 1 clips are left, the missing distances are NaN.
    """
    x = as_heads(x)
    check_finite(x, heads, clips)
    if k < 1:
        raise InputError(f"k = {k}: at least one neighbour is needed")
    if transform is not None and len(transform) != len(x):
        raise InputError(f"{len(transform)} transforms were given for {len(x)} heads")
    n_heads, n_clips, _ = x.shape
    values = np.full((n_heads, n_clips, k), np.nan)
    resolution = input_resolution(x)
    n, room = np.zeros(n_heads, dtype=np.int64), Room()
    for h in range(n_heads):
        cloud = x[h].astype(np.float64)
        if transform is not None:
            root = np.asarray(transform[h], dtype=np.float64)
            cloud = cloud @ root
            resolution[h] *= np.linalg.norm(root, 2) if root.size else 0.0
        keep, found = _without_duplicates(x[h], cloud, k, 8 * resolution[h], room)
        n[h] = len(keep)
        values[h, keep, : found.shape[1]] = found
    return Distances(values, resolution, n, n_clips - n)


def first_of_each(x: Array) -> Array:
    """Indices of the rows that differ from every row before them (−0 equals 0)."""
    bits = np.ascontiguousarray(x + 0.0).view(f"u{x.dtype.itemsize}").astype(np.uint64)
    # a 64-bit hash orders the rows at once; equal hashes are then compared entry by entry
    keys = np.random.default_rng(0).integers(1, 2**63, size=x.shape[1], dtype=np.uint64) * 2 + 1
    hashes = (bits * keys).sum(axis=1, dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    same = hashes[order][1:] == hashes[order][:-1]
    if not same.any():
        return np.arange(len(x))
    same &= (x[order][1:] == x[order][:-1]).all(axis=1)
    dropped = order[1:][same]
    return np.delete(np.arange(len(x)), dropped)


class Room:
    """Memory to work in that is used again: fresh memory costs more than what is done in it."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, ...], kind: type) -> Array:
        """With anything in it; what was asked for by this name before is gone."""
        known = self._arrays.get(name)
        if known is None or known.shape != shape or known.dtype != kind:
            known = self._arrays[name] = np.empty(shape, dtype=kind)
        return known


def _without_duplicates(
    x: Array, cloud: Array, k: int, tolerance: Array, room: Room
) -> tuple[Array, Array]:
    """Points that are left, and their distances: equal rows are dropped, then the later of two
    points closer than the input can tell apart, until none are left."""
    keep = np.arange(len(x))
    found = nearest(cloud, k, room=room)[0]
    if found.shape[1] == 0 or not (found[:, 0] <= tolerance).any():
        return keep, found  # as a rule: nothing is that close, so that no two rows are equal
    keep = first_of_each(x)
    while True:
        distances, indices = nearest(cloud[keep], k, return_indices=True, room=room)
        close = distances <= np.minimum(tolerance[keep][:, None], tolerance[keep][indices])
        earlier = (close & (indices < np.arange(len(keep))[:, None])).any(axis=1)
        if not earlier.any():
            return keep, distances
        keep = keep[~earlier]


def nearest(
    x: Array, k: int, *, return_indices: bool = False, room: Room | None = None
) -> tuple[Array, Array]:
    """Exact k nearest neighbours of each row of x [n, d] among the others.

    Returns distances [n, k'] and indices [n, k'] (empty unless asked for), k' = min(k, n − 1).
    """
    x = np.asarray(x, dtype=np.float64)
    n = len(x)
    k = min(k, max(n - 1, 0))
    if k == 0:
        return np.empty((n, 0)), np.empty((n, 0), dtype=np.int64)
    scale = power_of_two_scale(x - x[0])
    x = x / scale
    squared = np.full((n, k), np.nan)
    indices = np.full((n, k) if return_indices else (n, 0), -1, dtype=np.int64)
    rows, room = np.arange(n), Room() if room is None else room
    for precision in (np.float32, np.float64):
        if len(rows):
            rows = _search(x, rows, precision, squared, indices, room)
    _brute_force(x, rows, squared, indices)
    return np.sqrt(squared) * scale, indices


def _search(
    x: Array, rows: Array, precision: type, squared: Array, indices: Array, room: Room
) -> Array:
    """Fill in the rows that can be proved at this precision; return the others."""
    n, d = x.shape
    k = squared.shape[1]
    centred = x - x.mean(axis=0)
    # inner products of length d + 1: |error| ≤ (d + 1) u (2|x||y| + |y|²) and as much again for the
    # rounding of the inputs, with 2|x||y| ≤ |x|² + |y|²; doubled to be safe
    epsilon = 4 * (d + 8) * float(np.finfo(precision).eps)
    norms = (centred * centred).sum(axis=1)
    left = room.array("left", (n, d + 1), precision)
    np.multiply(centred, -2, out=left[:, :d], casting="same_kind")
    left[:, d] = 1
    right = room.array("right", (d + 1, n), precision)
    right[:d] = centred.T
    right[d] = norms * (1 - epsilon)

    fold = max(1, round((n / _GROUPS) ** 0.5))
    groups = -(-n // fold**2) | 1  # odd: rows a power of two apart share cache lines
    width = fold**2 * groups
    wanted = min(k + 1 + _MARGIN, groups) - 1
    size = max(16, _BLOCK_BYTES // (width * np.dtype(precision).itemsize))
    buffer = room.array("bounds", (min(size, len(rows)), width), precision)
    buffer[:, n:] = np.inf  # the product fills the rest
    marks = room.array("marks", (-(-buffer.size // 16), 2), np.uint64)
    # differences of a block
    space = room.array("space", (2, len(buffer) * 2 * (wanted + 1), d), np.float64)
    unproved = []
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        bounds = buffer[: len(block)]
        np.matmul(left[block], right, out=bounds[:, :n])
        bounds[np.arange(len(block)), block] = np.inf  # a point is not its own neighbour
        minima = _least_of_groups(bounds, fold, room)
        minima.partition(wanted, axis=1)
        threshold = minima[:, wanted]
        flat = _at_most(bounds, threshold, marks)
        row = flat // width
        column = flat - row * width
        counts = np.bincount(row, minlength=len(block))
        limit = threshold + norms[block] * (1 - epsilon)
        candidates = _Candidates(block, row, column, counts, limit, space)
        proved = _refine(x, candidates, squared, indices, cap=4 * (k + _GROUPS))
        unproved.append(block[~proved])
    return np.concatenate(unproved)


def _least_of_groups(bounds: Array, fold: int, room: Room) -> Array:
    """[row, group]: of columns as many apart as there are groups, fold² in each."""
    # in two steps of long runs: one step of short ones takes a quarter longer
    rows, width = bounds.shape
    halfway = room.array("halfway", (rows, width // fold), bounds.dtype.type)
    bounds.reshape(rows, fold, -1).min(axis=1, out=halfway)
    minima = room.array("minima", (rows, width // fold**2), bounds.dtype.type)
    return halfway.reshape(rows, fold, -1).min(axis=1, out=minima)


def _at_most(bounds: Array, threshold: Array, marks: Array) -> Array:
    """Where bounds [row, column] ≤ threshold [row], as numbers in rows one after another."""
    pairs = marks[: -(-bounds.size // 16)]
    pairs[-1] = 0  # what is beyond the last row
    with np.errstate():  # puts the size of the buffer back
        # where several rows fit its buffer, NumPy writes each threshold out a row's length of times
        # first, which takes longer than to compare
        np.setbufsize(128)
        out = pairs.reshape(-1).view(bool)[: bounds.size].reshape(bounds.shape)
        np.less_equal(bounds, threshold[:, None], out=out)
    # One in a hundred is. By 16, by 8 and alone they are found in two thirds of the time: where
    # more than a tenth are found NumPy looks for them without branches, which nobody could predict.
    first = np.flatnonzero((pairs[:, 0] | pairs[:, 1]) != 0)
    words = pairs.take(first, axis=0).reshape(-1)
    second = np.flatnonzero(words != 0)
    third = np.flatnonzero(words.take(second).view(bool))
    begin = first.take(second >> 1) * 16 + (second & 1) * 8
    flat: Array = begin.take(third >> 3) + (third & 7)
    return flat


@dataclass(frozen=True)
class _Candidates:
    """Points that may be among the nearest of each row of a block."""

    block: Array
    """[row], number of the point."""
    row: Array
    """[candidate], place of its point in the block, rising."""
    column: Array
    """[candidate], number of the neighbour."""
    counts: Array
    """[row], candidates of each."""
    limit: Array
    """[row], squared distance below which no other point lies."""
    space: Array
    """[2, at least so many as there are as a rule, d]: to work in."""

    def differences(self, x: Array, row: Array, column: Array) -> Array:
        """[candidate, d], of the points of these rows of the block to these points."""
        n, room = len(row), self.space
        own, other = room[:, :n] if n <= room.shape[1] else np.empty((2, n, x.shape[1]))
        # every number is one of x: "clip" only saves a check and a copy
        np.take(x, self.block[row], axis=0, mode="clip", out=own)
        np.take(x, column, axis=0, mode="clip", out=other)
        return np.subtract(own, other, out=own)


def _refine(x: Array, found: _Candidates, squared: Array, indices: Array, cap: int) -> Array:
    """Distances of the candidates from differences in float64; which rows are thereby proved."""
    k = squared.shape[1]
    block, row, column, counts, limit = (
        found.block, found.row, found.column, found.counts, found.limit,
    )  # fmt: skip
    usable = (counts >= k) & (counts <= cap) & np.isfinite(limit)
    if not usable.all():
        wanted = usable[row]
        row, column, counts = row[wanted], column[wanted], np.where(usable, counts, 0)
    difference = found.differences(x, row, column)
    exact = np.einsum("ij,ij->i", difference, difference)
    # ragged rows → one rectangle, padded with infinity
    table = np.full((len(block), int(counts.max(initial=k))), np.inf)
    filled = np.arange(table.shape[1]) < counts[:, None]
    table[filled] = exact
    if indices.shape[1]:
        order = np.argsort(table, axis=1, kind="stable")[:, :k]
        names = np.full(table.shape, -1, dtype=np.int64)
        names[filled] = column
        table = np.take_along_axis(table, order, axis=1)
        nearest = np.take_along_axis(names, order, axis=1)
    else:
        table.sort(axis=1)
        table = table[:, :k]
    proved = usable & (table[:, k - 1] <= limit)
    squared[block[proved]] = table[proved]
    if indices.shape[1]:
        indices[block[proved]] = nearest[proved]
    return proved


def _brute_force(x: Array, rows: Array, squared: Array, indices: Array) -> None:
    """Differences to every other point, in float64: always right, used where nothing else is."""
    k = squared.shape[1]
    size = max(1, 2**22 // x.size)
    for start in range(0, len(rows), size):
        block = rows[start : start + size]
        difference = x[block][:, None, :] - x[None, :, :]
        exact = np.einsum("ijk,ijk->ij", difference, difference)
        exact[np.arange(len(block)), block] = np.inf
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]
        squared[block] = np.take_along_axis(exact, order, axis=1)
        if indices.shape[1]:
            indices[block] = order
