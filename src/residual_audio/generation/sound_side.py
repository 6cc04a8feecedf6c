"""Sound as a distribution: the windows of a folder, or the statistics kept of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_folder import audio_files, embed_windows
from residual_audio.embeddings.vector_cache import Embedded
from residual_audio.errors import InputError
from residual_audio.files import write_npz, write_safetensors
from residual_audio.metrics import frechet
from residual_audio.progress import SILENT, Progress

Array = npt.NDArray[Any]

STATISTICS_SUFFIXES = (".npz", ".safetensors")


@dataclass(frozen=True)
class SoundSide:
    """One side of a distance: window vectors, or statistics only."""

    name: str
    gaussian: frechet.Gaussian
    vectors: Array | None
    files: tuple[str, ...] = ()
    """The file of each vector."""
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_files(self) -> int:
        return len(set(self.files))


def read_side(
    source: Path,
    model: JointEmbedder,
    *,
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> SoundSide:
    """A folder of audio files, or a statistics file made by `write_statistics`."""
    if source.is_file() and source.suffix in STATISTICS_SUFFIXES:
        return read_statistics(source, model)
    files = audio_files(source)
    found = embed_windows(model, files, embedding, root=source, progress=progress)
    return side_of(found, source.name)


def side_of(found: Embedded, name: str) -> SoundSide:
    """From embedded windows; two are the least that a covariance can be made of."""
    if len(found) < 2:
        raise InputError(
            f"'{name}' gives {len(found)} window of sound: a distance between distributions needs "
            "at least two, and hundreds to mean something"
        )
    vectors = found.vectors.astype(np.float64)
    gaussian = frechet.fit_gaussian(vectors, name)
    return SoundSide(name, gaussian, vectors, found.ids, dict(found.skipped))


def write_statistics(side: SoundSide, model: JointEmbedder, path: Path) -> None:
    """Mean, covariance and n as `.npz` (mu, sigma, n) or `.safetensors`, with what made them."""
    arrays = {
        "mu": side.gaussian.mean,
        "sigma": side.gaussian.covariance,
        "n": np.array(side.gaussian.n, dtype=np.int64),
    }
    record = provenance.collect(model=model, source=side.name)
    if path.suffix == ".npz":
        # text as bytes of uint8: an object array would need pickle to be read again
        note = np.frombuffer(json.dumps(record).encode(), dtype=np.uint8)
        arrays["provenance"] = note
        write_npz(path, arrays)
    elif path.suffix == ".safetensors":
        write_safetensors(path, arrays, {"provenance": json.dumps(record)})
    else:
        raise InputError(f"'{path}': statistics are written as .npz or .safetensors")


def read_statistics(path: Path, model: JointEmbedder | None = None) -> SoundSide:
    """Statistics of this package, or any `.npz` with mu, sigma and perhaps n.

    Statistics made with other weights than `model`'s are refused: the distance would be a number
    without meaning.
    """
    arrays, record = _read_arrays(path)
    if not {"mu", "sigma"} <= set(arrays):
        raise InputError(f"'{path}' has no mu and sigma: it holds {', '.join(sorted(arrays))}")
    made_with = record.get("model", {})
    if model is not None and made_with.get("sha256", model.sha256) != model.sha256:
        raise InputError(
            f"'{path}' was made with model '{made_with.get('name')}', not with '{model.name}'"
        )
    n = int(np.ravel(arrays["n"])[0]) if "n" in arrays else 0
    gaussian = frechet.gaussian_from_statistics(arrays["mu"], arrays["sigma"], n)
    return SoundSide(path.stem, gaussian, None)


def _read_arrays(path: Path) -> tuple[dict[str, Array], Mapping[str, Mapping[str, str]]]:
    """Arrays by name, and the provenance kept with them."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            note = arrays["provenance"].tobytes() if "provenance" in arrays else b"{}"
            return arrays, json.loads(note)
        from safetensors import safe_open

        with safe_open(path, "numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return arrays, json.loads((file.metadata() or {}).get("provenance", "{}"))
    except Exception as error:  # each reader has its own errors for a damaged file
        raise InputError(f"'{path}' cannot be read as statistics: {error}") from error
