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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from residual_audio import __version__, provenance
from residual_audio.audio.windows import LongPolicy
from residual_audio.data.audio_files import AUDIO_SUFFIXES, is_audio
from residual_audio.errors import AudioError, InputError
from residual_audio.files import write_safetensors
from residual_audio.passes.embed import embed_items
from residual_audio.passes.loop import Cut, Hearing
from residual_audio.passes.sources import cut_clips, cut_inputs
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Clip

Item = TypeVar("Item")
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

    long: LongPolicy
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
    long: LongPolicy = "first",
    batch_size: int = 8,
    cache: bool = True,
    advance: Advance | None = None,
) -> Embedded:
    """One vector a readable clip of the data set, in its order."""
    clips: Sequence[Clip] = dataset.clips
    if len(clips) == 0:
        raise InputError(f"{dataset.name} has no clip to embed")
    rate = model.sample_rate_hz
    key = {"what": "clips", "data": dataset.fingerprint(), "n": len(clips), "long": long}

    def compute() -> Embedded:
        names = [clip.id for clip in clips]
        cut = cut_clips(model, dataset, long)
        return _embed(model, clips, names, cut, Hearing(long, batch_size), advance)

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
    names = [str(file.relative_to(root)) if root else file.name for file in files]

    def compute() -> Embedded:
        cut, hearing = cut_inputs(model, "tile"), Hearing("tile", batch_size)
        return _embed(model, files, names, cut, hearing, advance, each_window=True)

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
    items: Sequence[Item],
    names: Sequence[str],
    cut: Cut[Item],
    hearing: Hearing,
    advance: Advance | None,
    each_window: bool = False,
) -> Embedded:
    """By the one loop; what cannot be read is named, not lost."""
    told = SILENT if advance is None else _Told(advance)
    found = embed_items(model, items, cut, hearing, each_window=each_window, progress=told)
    owners = [names[place] for place in found.places]
    skipped = {names[place]: str(error) for place, error in found.skipped.items()}
    if not owners:
        first = next(iter(skipped.values()), "nothing to read")
        raise InputError(f"none of {len(items)} clips could be read; the first: {first}")
    if not np.isfinite(found.vectors).all():
        bad = owners[int(np.argwhere(~np.isfinite(found.vectors))[0][0])]
        raise InputError(f"'{bad}' has an embedding that is not finite with model '{model.name}'")
    return Embedded(found.vectors, tuple(owners), skipped)


class _Told(Progress):
    """Passes on how much was done."""

    def __init__(self, advance: Advance) -> None:
        self._advance = advance

    def advance(self, n: int = 1) -> None:
        self._advance(n)


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
