"""Embeddings of a data set, of texts and of folders, computed once and kept in the user's cache.

A cached file is named by what decides its content: weights, data, window policy and version of this
package. It is written whole or not at all, and its digest is checked each time it is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from residual_audio import __version__, provenance
from residual_audio.data.audio_files import AUDIO_SUFFIXES, is_audio
from residual_audio.errors import AudioError, InputError
from residual_audio.files import write_safetensors
from residual_audio.types import Clip

Array = npt.NDArray[Any]
Advance = Callable[[int], object]

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Embedded:
    """Unit vectors [n, d] and what each row is; what could not be read, and why."""

    vectors: Array
    ids: tuple[str, ...]
    """Clip id, file name or text of each row; windows of one file share its name."""
    skipped: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.ids)


class Embedding(TypedDict, total=False):
    """How clips are embedded: what every evaluation passes on."""

    long: str
    batch_size: int
    cache: bool
    advance: Advance | None


def cache_dir() -> Path:
    """`RESIDUAL_AUDIO_CACHE`, or the usual place in the user's home."""
    given = os.environ.get("RESIDUAL_AUDIO_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "residual-audio"


def embed_clips(
    model: Any,
    dataset: Any,
    *,
    long: str = "first",
    batch_size: int = 8,
    cache: bool = True,
    advance: Advance | None = None,
) -> Embedded:
    """One vector a readable clip of the data set, in its order."""
    clips: Sequence[Clip] = dataset.clips
    if len(clips) == 0:
        raise InputError(f"{dataset.name} has no clip to embed")
    rate = model.front_end.spec.sample_rate_hz
    key = {"what": "clips", "data": dataset.fingerprint(), "n": len(clips), "long": long}

    def compute() -> Embedded:
        def read(clip: Clip) -> list[Array]:
            return [dataset.read(clip, rate)]

        return _embed(model, clips, [c.id for c in clips], read, long, batch_size, advance)

    by_id = {clip.id: clip for clip in clips} if cache else {}
    return _cached(
        model, key, compute, cache, lambda name: _fails(lambda: dataset.read(by_id[name], rate))
    )


def embed_windows(
    model: Any,
    files: Sequence[Path],
    *,
    root: Path | None = None,
    batch_size: int = 8,
    cache: bool = True,
    advance: Advance | None = None,
) -> Embedded:
    """One vector a window of each file: long files give several rows with the file's name."""
    from residual_audio.audio.decode import load_audio

    names = [str(file.relative_to(root)) if root else file.name for file in files]
    rate = model.front_end.spec.sample_rate_hz

    def read(file: Path) -> list[Array]:
        return list(model.windows(load_audio(file, rate), "tile"))

    def compute() -> Embedded:
        return _embed(model, files, names, read, "first", batch_size, advance)

    if not cache:
        return compute()
    contents = [[name, provenance.sha256_file(f)] for name, f in zip(names, files, strict=True)]
    digest = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    return _cached(model, {"what": "windows", "data": digest, "n": len(files)}, compute, cache)


def need_text(model: Any) -> None:
    """Let an audio-only model say so before any sound is embedded."""
    if getattr(model, "text", None) is None:
        model.embed_text(["a sound"])


def embed_texts(model: Any, texts: Sequence[str], *, cache: bool = True) -> Array:
    """Unit vectors of texts [n, d], each different text embedded once."""
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        raise InputError("there is no text to embed")
    digest = hashlib.sha256(json.dumps(distinct).encode()).hexdigest()

    def compute() -> Embedded:
        vectors = np.asarray(model.embed_text(distinct), dtype=np.float32)
        return Embedded(vectors, tuple(distinct), {})

    found = _cached(model, {"what": "texts", "data": digest, "n": len(distinct)}, compute, cache)
    row = {text: i for i, text in enumerate(found.ids)}
    return found.vectors[[row[text] for text in texts]]


def audio_files(folder: Path) -> list[Path]:
    """Audio files below a folder, in order; an empty or missing folder is an error."""
    if not folder.is_dir():
        raise InputError(f"'{folder}' is not a folder of audio files")
    files = sorted(p for p in folder.rglob("*") if is_audio(p.name) and p.is_file())
    if not files:
        raise InputError(f"'{folder}' holds no audio file (looked for {', '.join(AUDIO_SUFFIXES)})")
    return files


def _embed(
    model: Any,
    items: Sequence[Any],
    names: Sequence[str],
    read: Callable[[Any], list[Array]],
    long: str,
    batch_size: int,
    advance: Advance | None,
) -> Embedded:
    """Decode ahead in threads, embed in batches; what cannot be read is named, not lost."""
    from residual_audio.audio.prefetch import prefetch

    vectors: list[Array] = []
    owners: list[str] = []
    skipped: dict[str, str] = {}
    waiting: list[tuple[str, Array]] = []

    def flush() -> None:
        if waiting:
            waves = [wave for _, wave in waiting]
            vectors.append(np.asarray(model.embed_audio(waves, batch_size=batch_size, long=long)))
            owners.extend(name for name, _ in waiting)
            waiting.clear()

    with closing(prefetch(items, read, 2, 2 * batch_size)) as ahead:
        for (_, waves, error), name in zip(ahead, names, strict=True):
            if isinstance(error, AudioError):
                skipped[name] = str(error)
            elif error is not None:
                raise error
            else:
                waiting.extend((name, wave) for wave in waves or ())
                if len(waiting) >= 4 * batch_size:
                    flush()
            if advance is not None:
                advance(1)
    flush()
    if not vectors:
        first = next(iter(skipped.items()), ("", "nothing to read"))
        raise InputError(f"none of {len(items)} clips could be read; the first: {first[1]}")
    stacked = np.concatenate(vectors).astype(np.float32)
    if not np.isfinite(stacked).all():
        bad = owners[int(np.argwhere(~np.isfinite(stacked))[0][0])]
        raise InputError(f"'{bad}' has an embedding that is not finite with model '{model.name}'")
    return Embedded(stacked, tuple(owners), skipped)


def _fails(read: Callable[[], object]) -> bool:
    try:
        read()
    except AudioError:
        return True
    return False


def _cached(
    model: Any,
    what: dict[str, Any],
    compute: Callable[[], Embedded],
    use_cache: bool,
    still_fails: Callable[[str], bool] = lambda name: True,
) -> Embedded:
    """What was computed before, unless a clip that was skipped then can be read now."""
    if not use_cache or not getattr(model, "sha256", None):
        return compute()
    key = {
        "schema": SCHEMA_VERSION,
        "version": __version__,
        "model": model.sha256,
        "family": model.family,
        **what,
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
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


def _write(path: Path, key: dict[str, Any], found: Embedded) -> None:
    vectors = np.ascontiguousarray(found.vectors)
    header = {
        "key": json.dumps(key, sort_keys=True),
        "ids": json.dumps(found.ids),
        "skipped": json.dumps(dict(found.skipped)),
    }
    header["sha256"] = _digest(vectors, header.values())
    write_safetensors(path, {"vectors": vectors}, header)


def _read(path: Path, key: dict[str, Any]) -> Embedded | None:
    """The cached embeddings, or None where there are none that can be trusted."""
    if not path.is_file():
        return None
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            vectors = file.get_tensor("vectors")
        written = header.pop("sha256", None)
        names = ("key", "ids", "skipped")
        if written != _digest(vectors, [header[name] for name in names]):
            raise ValueError("its content does not match its digest")
        if json.loads(header["key"]) != key:
            raise ValueError("it was made for something else")
        ids, skipped = tuple(json.loads(header["ids"])), json.loads(header["skipped"])
        return Embedded(vectors, ids, skipped)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        log.warning("cached embeddings '%s' are not used: %s", path.name, error)
        return None


def _digest(vectors: Array, texts: Iterable[str]) -> str:
    digest = hashlib.sha256(str((vectors.shape, vectors.dtype.str)).encode())
    for text in texts:
        digest.update(text.encode())
    digest.update(vectors.tobytes())
    return digest.hexdigest()
