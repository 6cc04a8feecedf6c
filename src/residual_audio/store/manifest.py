"""The manifest: what the store is, what made it, and the sha256 of everything and of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from residual_audio.errors import StoreError
from residual_audio.files import write_bytes

NAME = "manifest.json"
KIND = "residual-audio store"
SCHEMA_VERSION = 2
READABLE = (1, 2)
"""Version 1 told data sets apart by file sizes and had no digests of single arrays."""
_BLANK = "0" * 64


def write_manifest(folder: Path, manifest: Mapping[str, object]) -> None:
    """Write it with a hash of its own bytes, taken with zeros where the hash stands."""
    record = {"kind": KIND, "schema_version": SCHEMA_VERSION, "sha256": _BLANK, **manifest}
    record["sha256"] = _BLANK
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    write_bytes(folder / NAME, text.replace(_BLANK, digest, 1).encode())


def read_manifest(folder: Path) -> dict[str, object]:
    """Read and prove it."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreError(
            f"'{folder}' is not a store: it has no {NAME}. "
            "Make one with: residual-audio extract --out <folder>"
        ) from error
    record = parse(data)
    if record is None or not is_intact(data):
        raise StoreError(
            f"'{path}' is damaged: it does not match its own sha256. "
            "Extract again with --overwrite, or restore the file"
        )
    if record.get("kind") != KIND:
        raise StoreError(f"'{path}' is not the manifest of a store")
    if record.get("schema_version") not in READABLE:
        raise StoreError(
            f"'{path}' has schema version {record.get('schema_version')}, this version reads "
            f"{' and '.join(map(str, READABLE))}: extract again with --overwrite, or use the "
            "version that made it"
        )
    return record


def parse(data: bytes) -> dict[str, object] | None:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def is_intact(data: bytes) -> bool:
    """Whether the bytes match the hash they carry."""
    record = parse(data)
    digest = None if record is None else record.get("sha256")
    if not isinstance(digest, str) or len(digest) != 64 or digest == _BLANK:
        return False
    blank = data.replace(digest.encode(), _BLANK.encode(), 1)
    return hashlib.sha256(blank).hexdigest() == digest


def fingerprint(asked: Mapping[str, object]) -> str:
    """One hash for everything that decides what a run writes."""
    text = json.dumps([SCHEMA_VERSION, asked], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def changes(before: object, now: object, name: str = "") -> list[str]:
    """What differs, as `dataset.fingerprint: 1f2e… → 9a0b…`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        found = []
        for key in dict.fromkeys([*before, *now]):
            inner = f"{name}.{key}" if name else str(key)
            found += changes(before.get(key), now.get(key), inner)
        return found
    return [] if before == now else [f"{name}: {_short(before)} → {_short(now)}"]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
