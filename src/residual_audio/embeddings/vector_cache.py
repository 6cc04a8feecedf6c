"""Embeddings that were computed once, kept in the user's cache.

A cached file is named by what decides its content: weights, data, window policy and version of this
package. It is written whole or not at all, and its digest is checked each time it is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from residual_audio import __version__
from residual_audio.embeddings.embedder import JointEmbedder, Vectors
from residual_audio.files import cache_dir, write_safetensors

log = logging.getLogger(__name__)

SCHEMA_VERSION = 2

Key = Mapping[str, object]
"""What decides the content of an entry."""


@dataclass(frozen=True)
class Embedded:
    """Unit vectors [n, d] and what each row is; what could not be read, and why."""

    vectors: Vectors
    ids: tuple[str, ...]
    """Clip id, file name or text of each row; windows of one file share its name."""
    skipped: Mapping[str, str]
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Clip that can hardly be heard (silent, a few samples) → in what way."""

    def __len__(self) -> int:
        return len(self.ids)


def digest_of(content: object) -> str:
    """sha256 of anything JSON can say."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def recall(
    model: JointEmbedder,
    what: Key,
    compute: Callable[[], Embedded],
    still_fails: Callable[[str], bool] = lambda name: True,
) -> Embedded:
    """What was computed before, unless a clip that was skipped then can be read now."""
    if not model.sha256:  # weights without a digest cannot be told from others
        return compute()
    key: Key = {
        "schema": SCHEMA_VERSION,
        "version": __version__,
        "model": model.sha256,
        "family": model.family,
        **what,
    }
    digest = digest_of(key)
    path = cache_dir() / "embeddings" / digest[:2] / f"{digest}.safetensors"
    found = _read(path, key)
    if found is not None and all(still_fails(name) for name in found.skipped):
        return found
    found = compute()
    try:
        _write(path, key, found)
    except OSError as error:  # a full or read-only disk must not cost the result
        log.warning("embeddings could not be cached (%s)", error.strerror or error)
    return found


def _write(path: Path, key: Key, found: Embedded) -> None:
    vectors = np.ascontiguousarray(found.vectors)
    header = {
        "key": json.dumps(key, sort_keys=True),
        "ids": json.dumps(found.ids),
        "skipped": json.dumps(dict(found.skipped)),
        "remarks": json.dumps(dict(found.remarks)),
    }
    header["sha256"] = _digest(vectors, header.values())
    write_safetensors(path, {"vectors": vectors}, header)


def _read(path: Path, key: Key) -> Embedded | None:
    """The cached embeddings, or None where there are none that can be trusted."""
    if not path.is_file():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            vectors = file.get_tensor("vectors")
        written = header.pop("sha256", None)
        names = ("key", "ids", "skipped", "remarks")
        if written != _digest(vectors, [header[name] for name in names]):
            raise ValueError("its content does not match its digest")
        if json.loads(header["key"]) != key:
            raise ValueError("it was made for something else")
        ids, skipped, remarks = (json.loads(header[name]) for name in names[1:])
        return Embedded(vectors, tuple(ids), skipped, remarks)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        log.warning("cached embeddings '%s' are not used: %s", path.name, error)
        return None


def _digest(vectors: Vectors, texts: Iterable[str]) -> str:
    digest = hashlib.sha256(str((vectors.shape, vectors.dtype.str)).encode())
    for text in texts:
        digest.update(text.encode())
    digest.update(vectors.tobytes())
    return digest.hexdigest()
