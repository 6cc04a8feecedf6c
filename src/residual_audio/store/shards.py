"""Shards: a run of clips in one file that says by itself what it is and whether it is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.errors import StoreError
from residual_audio.metrics.moments import Moments, merge_all
from residual_audio.store.packing import BITS, pack
from residual_audio.store.tensors import Array, TensorFile, write_tensors


def shard_name(index: int) -> str:
    return f"shard-{index:05d}.safetensors"


def shard_ranges(n_clips: int, size: int) -> list[range]:
    """Places of the clips of each shard."""
    return [range(start, min(start + size, n_clips)) for start in range(0, n_clips, size)]


@dataclass(frozen=True)
class ShardNote:
    """What a shard says about itself."""

    run: str
    """Fingerprint of the run it belongs to."""
    index: int
    first: int
    """Place of its first clip in the run."""
    n_clips: int
    ok: list[int]
    """Places, counted from `first`, of the clips that have rows."""
    skipped: dict[str, str]
    """Place (as text), counted from `first` → reason."""
    payload_sha256: str
    remarks: dict[str, str] = field(default_factory=dict)
    """Place (as text), counted from `first` → what is odd about the sound of a clip with a row."""


@dataclass
class ShardRows:
    """Gathers the batches of one shard."""

    _parts: dict[str, list[Array]] = field(default_factory=dict)
    _moments: dict[str, list[Moments]] = field(default_factory=dict)
    n_rows: int = 0

    def add(self, arrays: Mapping[str, Array], n_clips: int) -> None:
        for name, array in arrays.items():
            if name.startswith("moments/"):
                continue
            if name.endswith("_at"):  # rows of the batch become rows of the shard
                array = shift_rows(array, self.n_rows)
            self._parts.setdefault(name, []).append(array)
        for name in arrays:
            if name.startswith("moments/") and name.endswith("/n"):
                site = name.removesuffix("/n")
                batch = Moments(
                    int(arrays[name]), arrays[f"{site}/mean"], arrays[f"{site}/scatter"]
                )
                self._moments.setdefault(site, []).append(batch)
        self.n_rows += n_clips

    def arrays(self) -> dict[str, Array]:
        found = {name: np.concatenate(parts) for name, parts in self._parts.items()}
        for name, array in found.items():
            if is_packed(name, array.dtype):
                found[name] = pack(array)
        for site, parts in self._moments.items():
            merged = merge_all(parts)
            found[f"{site}/n"] = np.asarray([merged.n], np.int64)
            found[f"{site}/mean"] = merged.mean
            found[f"{site}/scatter"] = merged.scatter
        return found


def shift_rows(at: Array, by: int) -> Array:
    """`…_at` arrays: the clip's row is the value, or its first column."""
    shifted = at.copy()
    if at.ndim == 1:
        shifted += by
    else:
        shifted[:, 0] += by
    return shifted


def write_shard(
    folder: Path,
    run: str,
    index: int,
    places: range,
    rows: ShardRows,
    skipped: Mapping[int, str],
    remarks: Mapping[int, str] | None = None,
) -> ShardNote:
    arrays = rows.arrays()
    ok = [i for i, place in enumerate(places) if place not in skipped]
    if len(ok) != rows.n_rows:
        raise StoreError(f"shard {index} has {rows.n_rows} rows for {len(ok)} clips")
    reasons = {str(place - places.start): skipped[place] for place in sorted(skipped)}
    odd = {str(p - places.start): why for p, why in sorted((remarks or {}).items())}
    digest = payload_hash(arrays)
    note = ShardNote(run, index, places.start, len(places), ok, reasons, digest, odd)
    write_tensors(folder / shard_name(index), arrays, note.__dict__)
    return note


def read_note(file: TensorFile) -> ShardNote:
    try:
        return ShardNote(**file.note)
    except TypeError as error:
        raise StoreError(f"'{file.path.name}' does not say what it is") from error


def check_shard(folder: Path, run: str, index: int, places: range) -> ShardNote | None:
    """The note of a finished shard of this run; None where it is missing, foreign or damaged."""
    try:
        file = TensorFile(folder / shard_name(index))
        note = read_note(file)
        if (note.run, note.index, note.first) != (run, index, places.start):
            return None
        whole = payload_hash({name: file[name] for name in file.names}) == note.payload_sha256
    except (StoreError, ValueError, KeyError):
        return None
    return note if whole else None


def payload_hash(arrays: Mapping[str, Array]) -> str:
    """sha256 over names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def is_packed(name: str, dtype: Any) -> bool:
    """Head outputs of a float32 model, the bulk of a plain store; all else is kept as it is."""
    return name.startswith("heads/") and dtype == np.float32


def is_sampled(name: str) -> bool:
    """Arrays with rows for sampled clips only; `…_at` says for which."""
    return name.endswith(("/maps", "/sample", "_at"))


def shard_schema(file: TensorFile) -> dict[str, dict[str, Any]]:
    """Type and shape of one row of every array, as a reader gets it."""
    found: dict[str, dict[str, Any]] = {}
    for name in file.names:
        shape, dtype = list(file.shape(name)), file.dtype(name)
        if not name.startswith("moments/"):
            shape = shape[1:]
        if name.startswith("heads/") and dtype == np.uint8:
            shape[-1] = (shape[-1] - 1) // 3
            found[name] = {"dtype": "float32", "shape": shape, "packed_bits": BITS}
        else:
            found[name] = {"dtype": str(dtype), "shape": shape}
    return found
