"""Whether the files of a store are the ones its manifest lists: by name and size when it is
opened, by content when they are read."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from residual_audio.errors import StoreError
from residual_audio.provenance import sha256_file
from residual_audio.store.manifest import NAME
from residual_audio.store.shards import open_shard, shard_name
from residual_audio.store.tensors import TensorFile

Entry = Mapping[str, Any]
"""One file in the manifest: name, bytes, sha256."""

_NEEDED = (
    "asked", "arrays", "files", "fingerprint", "joint", "logit_scale", "model", "n_clips",
    "partial", "provenance", "shards", "sites",
)  # fmt: skip
_AGAIN = "Run the same `extract` again, it makes anew what is damaged, or restore the file"

_lock = threading.Lock()
_verified: dict[Path, tuple[tuple[int, int, int], str]] = {}


def check_listing(folder: Path, manifest: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Refuse a manifest that lacks something, or lists files that are not its own or not there."""
    lacking = [key for key in _NEEDED if key not in manifest]
    if lacking:
        raise StoreError(f"'{folder / NAME}' lacks '{lacking[0]}': it is not a whole manifest")
    try:
        files = {str(entry["name"]): int(entry["bytes"]) for entry in manifest["files"]}
        shards = {str(entry["name"]): int(entry["bytes"]) for entry in manifest["shards"]}
        n_ok = sum(int(entry["n_ok"]) for entry in manifest["shards"])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"'{folder / NAME}' lists its files in a way that makes no sense"
        ) from error
    if list(shards) != [shard_name(i) for i in range(len(shards))] or set(files) != set(names):
        foreign = [*(set(files) - set(names)), *shards, *names]
        raise StoreError(f"'{folder / NAME}' lists '{foreign[0]}' where it should not be")
    if n_ok > int(manifest["n_clips"]):
        raise StoreError(f"'{folder / NAME}' promises more rows than clips")
    for name, size in {**files, **shards}.items():
        path = folder / name
        there = path.stat().st_size if path.is_file() else None
        if there is None:
            raise StoreError(f"'{path}' is missing from the store. {_AGAIN}")
        if there != size:
            raise StoreError(f"'{path}' has {there} bytes instead of {size}. {_AGAIN}")


def read_listed(folder: Path, entry: Entry) -> bytes:
    """A file whole, proved by its sha256."""
    path = folder / str(entry["name"])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"'{path}' cannot be read: {error}") from error
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise StoreError(f"'{path}' is damaged: its sha256 is not the manifest's. {_AGAIN}")
    return data


def listed_shard(folder: Path, manifest: Mapping[str, Any], index: int) -> TensorFile:
    """A shard that is the one the manifest means; arrays are proved as they are read."""
    entry = manifest["shards"][index]
    path = folder / str(entry["name"])
    if "seal" not in entry:  # of an earlier version: proved whole, once a process
        _check_whole(path, str(entry["sha256"]))
        return TensorFile(path)
    file, note = open_shard(path)
    if (note.run, note.index, note.seal) != (manifest["fingerprint"], index, entry["seal"]):
        raise StoreError(
            f"'{path}' is not the shard that was written there: it says it is number {note.index}"
            f"{'' if note.run == manifest['fingerprint'] else ' of another run'}. {_AGAIN}"
        )
    return file


def _check_whole(path: Path, sha256: str) -> None:
    try:
        now = path.stat()
        state = (now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        with _lock:
            if _verified.get(path) == (state, sha256):
                return
        if sha256_file(path) != sha256:
            raise StoreError(f"'{path}' is damaged: its sha256 is not the manifest's. {_AGAIN}")
    except OSError as error:
        raise StoreError(f"'{path.name}' is missing from the store") from error
    with _lock:
        _verified[path] = (state, sha256)
