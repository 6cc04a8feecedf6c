"""Units from elsewhere, as sparse autoencoders find them: read from a small file, shown as pages.

A feature has a name and, for clips of the run, how strongly it is active; or a direction of the
latent, along which the run's own clips are then laid; or both. The file is JSON or safetensors, as
`docs/atlas.md` says, or a sparse autoencoder as SAELens writes it (`autoencoder_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from residual_audio.atlas.autoencoder_files import (
    CONFIG,
    WEIGHTS,
    is_autoencoder,
    read_autoencoder,
)
from residual_audio.errors import InputError
from residual_audio.files import parse_json, read_json_object
from residual_audio.store import Store
from residual_audio.types import FloatArray

MOST = 20_000
"""Features that a page can list."""


@dataclass(frozen=True)
class Features:
    """Features over the clips of a store."""

    name: str
    names: tuple[str, ...]
    about: tuple[str, ...]
    """One text a feature, empty where there is none."""
    activations: FloatArray
    """[feature, clip of the store], NaN where the file has no value."""
    directions: FloatArray | None
    """[feature, latent]"""
    projected: bool
    """The activations are places along the directions, not what the file says."""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class _File:
    """What a file holds, whichever its kind."""

    name: str
    names: list[str]
    about: list[str]
    clips: list[str] | None
    activations: FloatArray | None
    """[clip of the file, feature]"""
    directions: FloatArray | None


def read_features(path: Path, store: Store) -> Features:
    """Features of a file, laid over the clips of a store; what does not fit is refused."""
    path = Path(path).expanduser()
    latent = np.asarray(store.latent(), np.float64)
    if is_autoencoder(path):
        found = _encoded(path, latent)
    elif path.is_file():
        found = _read_safetensors(path) if path.suffix == ".safetensors" else _read_json(path)
    else:
        raise InputError(
            f"'{path}' is no file of features, and no folder of an autoencoder with {CONFIG} and "
            f"{WEIGHTS}"
        )
    if not found.names or len(found.names) > MOST:
        raise InputError(f"'{path}' has {len(found.names)} features: 1 to {MOST:,} can be shown")
    if found.activations is None and found.directions is None:
        raise InputError(f"'{path}' has neither activations nor directions")
    for what, values in (("activations", found.activations), ("directions", found.directions)):
        if values is not None and not np.isfinite(values).all():
            raise InputError(f"'{path}': its {what} hold NaN or infinity")
    if found.directions is not None and found.directions.shape != (
        len(found.names),
        latent.shape[1],
    ):
        raise InputError(
            f"'{path}': directions are {_shape(found.directions)}, where {len(found.names)} "
            f"features in a latent of {latent.shape[1]} need {len(found.names)} × {latent.shape[1]}"
        )
    if found.activations is None:
        assert found.directions is not None
        length = np.linalg.norm(found.directions, axis=1, keepdims=True)
        if (length == 0).any():
            raise InputError(f"'{path}': direction {int(np.argmin(length))} is zero")
        along = (found.directions / length) @ (latent - latent.mean(0)).T
    else:
        along = _over_clips(path, found, [str(i) for i in store.clips["id"]])
    return Features(
        found.name,
        tuple(found.names),
        tuple(found.about),
        along,
        found.directions,
        found.activations is None,
    )


def _encoded(path: Path, latent: FloatArray) -> _File:
    """An autoencoder over the run's own clips; its name says how well it fits them."""
    held = read_autoencoder(path)
    if held.directions.shape[1] != latent.shape[1]:
        raise InputError(
            f"'{path}' reads a latent of {held.directions.shape[1]}, this run's is "
            f"{latent.shape[1]} wide: it was trained on something else"
        )
    active = held.encode(latent)
    left = ((latent - held.decode(active, latent)) ** 2).sum()
    explained = 1 - left / ((latent - latent.mean(0)) ** 2).sum()
    folder = path if path.is_dir() else path.parent
    name = (
        f"{folder.resolve().name}: {held.architecture}, {(active > 0).sum(1).mean():.1f} of "
        f"{active.shape[1]} units active in a clip, {explained:.1%} of the variance explained"
    )
    names = [str(i) for i in range(active.shape[1])]
    return _File(name, names, [""] * len(names), None, active, held.directions)


def _over_clips(path: Path, found: _File, ids: Sequence[str]) -> FloatArray:
    values = found.activations
    assert values is not None
    clips = list(ids) if found.clips is None else found.clips
    if values.shape != (len(clips), len(found.names)):
        raise InputError(
            f"'{path}': activations are {_shape(values)}, where {len(clips)} clips and "
            f"{len(found.names)} features need {len(clips)} × {len(found.names)}"
        )
    if len(set(clips)) < len(clips):
        raise InputError(f"'{path}': a clip stands twice in its list of clips")
    place = {clip: i for i, clip in enumerate(clips)}
    rows = [place.get(clip) for clip in ids]
    if all(row is None for row in rows):
        raise InputError(f"'{path}': none of its {len(clips)} clips is in the run")
    missing = np.full(len(found.names), np.nan)
    return np.stack([missing if row is None else values[row] for row in rows], axis=1)


def _shape(values: FloatArray) -> str:
    return " × ".join(map(str, values.shape))


def _read_json(path: Path) -> _File:
    held = read_json_object(path)
    listed = held.get("features")
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InputError(f"'{path}' has no list 'features' of objects")
    return _File(
        str(held.get("name", path.stem)),
        [str(one.get("name", i)) for i, one in enumerate(listed)],
        [str(one.get("about", "")) for one in listed],
        _names(path, held.get("clips")),
        _matrix(path, listed, "activations", columns=True),
        _matrix(path, listed, "direction"),
    )


def _matrix(
    path: Path, listed: list[dict[str, object]], key: str, *, columns: bool = False
) -> FloatArray | None:
    """The lists of all features under one key; all or none must have it, of one length."""
    there = [one[key] for one in listed if key in one]
    if not there:
        return None
    try:
        rows = np.array(there, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"'{path}': '{key}' are no lists of numbers of one length") from None
    if len(there) < len(listed) or rows.ndim != 2:
        raise InputError(f"'{path}': all features need a list '{key}' of one length, or none")
    return rows.T if columns else rows


def _names(path: Path, held: object) -> list[str] | None:
    if held is None:
        return None
    if not isinstance(held, list):
        raise InputError(f"'{path}': 'clips' is no list of clip ids")
    return [str(one) for one in held]


def _read_safetensors(path: Path) -> _File:
    try:
        with safe_open(path, "numpy") as file:
            about, there = file.metadata() or {}, set(file.keys())
            activations, directions = (
                np.asarray(file.get_tensor(key), np.float64) if key in there else None
                for key in ("activations", "directions")
            )
    except (SafetensorError, OSError) as error:
        raise InputError(f"'{path}' cannot be read: {error}") from error
    n = 0
    if directions is not None:
        n = len(directions)
    elif activations is not None and activations.ndim == 2:
        n = activations.shape[1]
    try:
        names = parse_json(about.get("features", "null"))
        clips = parse_json(about.get("clips", "null"))
    except ValueError as error:
        raise InputError(f"'{path}': its header is no JSON: {error}") from error
    known = _names(path, names)
    return _File(
        about.get("name", path.stem),
        [str(i) for i in range(n)] if known is None else known,
        [""] * (n if known is None else len(known)),
        _names(path, clips),
        activations,
        directions,
    )
