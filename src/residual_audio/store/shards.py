"""Shards: a run of clips in one file that says by itself what it is and whether it is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.errors import StoreError
from residual_audio.metrics.moments import Moments, merge_all
from residual_audio.store.packing import BITS, pack
from residual_audio.store.tensors import Array, TensorFile, array_sha256, write_tensors

FAILED = "its shard failed: "
"""How the reason of every clip of a shard begins that could not be made."""


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
    unreachable: list[int]
    """Those of the skipped whose file could not be opened: they are tried again."""
    sha256: dict[str, str]
    """Array → sha256 of its values."""
    remarks: dict[str, str] = field(default_factory=dict)
    """Place (as text), counted from `first` → what is odd about the sound of a clip with a row."""
    seal: str = ""
    """sha256 over all of the above and over the type and shape of every array."""

    @property
    def failed(self) -> bool:
        """Whether it stands for a shard that could not be made: it is tried again."""
        return not self.ok and all(why.startswith(FAILED) for why in self.skipped.values())


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


@dataclass(frozen=True)
class Skipped:
    """A clip without a row."""

    reason: str
    passing: bool
    """Its file could not be opened, which may be otherwise later; else it was read and is bad."""


def write_shard(
    folder: Path,
    run: str,
    index: int,
    places: range,
    rows: ShardRows,
    skipped: Mapping[int, Skipped],
    remarks: Mapping[int, str] | None = None,
) -> ShardNote:
    arrays = rows.arrays()
    ok = [i for i, place in enumerate(places) if place not in skipped]
    if len(ok) != rows.n_rows:
        raise StoreError(f"shard {index} has {rows.n_rows} rows for {len(ok)} clips")
    note = ShardNote(
        run,
        index,
        places.start,
        len(places),
        ok,
        {str(place - places.start): skipped[place].reason for place in sorted(skipped)},
        [place - places.start for place in sorted(skipped) if skipped[place].passing],
        {name: array_sha256(array) for name, array in arrays.items()},
        {str(p - places.start): why for p, why in sorted((remarks or {}).items())},
    )
    schema = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    note = replace(note, seal=_seal(note, schema))
    write_tensors(folder / shard_name(index), arrays, asdict(note))
    return note


def open_shard(path: Path) -> tuple[TensorFile, ShardNote]:
    """A shard whose note is what was written; its arrays are checked as they are read."""
    file = TensorFile(path)
    try:
        note = ShardNote(**file.note)
        schema = {name: [file.dtype(name).str, list(file.shape(name))] for name in file.names}
        whole = note.seal == _seal(note, schema) and set(note.sha256) == set(schema)
    except (TypeError, ValueError) as error:
        raise StoreError(f"'{path.name}' does not say what it is") from error
    if not whole:
        raise StoreError(f"'{path}' is damaged: its header is not what was written")
    file.expect(note.sha256)
    return file, note


def check_shard(folder: Path, run: str, index: int, places: range) -> ShardNote | None:
    """The note of a finished shard of this run; None where it is missing, foreign or damaged."""
    try:
        file, note = open_shard(folder / shard_name(index))
        if (note.run, note.index, note.first, note.n_clips) != (
            run,
            index,
            places.start,
            len(places),
        ):
            return None
        for name in file.names:
            file[name]
    except StoreError:
        return None
    return note


def _seal(note: ShardNote, schema: Mapping[str, object]) -> str:
    text = json.dumps([asdict(replace(note, seal="")), schema], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_packed(name: str, dtype: object) -> bool:
    """Head outputs of a float32 model, the bulk of a plain store; all else is kept as it is."""
    return name.startswith("heads/") and dtype == np.float32


def is_sampled(name: str) -> bool:
    """Arrays with rows for sampled clips only; `…_at` says for which."""
    return name.endswith(("/maps", "/sample", "_at"))


def shard_schema(file: TensorFile) -> dict[str, dict[str, object]]:
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
