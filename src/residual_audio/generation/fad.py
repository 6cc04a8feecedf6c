"""Fréchet audio distance and its companions between two folders, on the vectors of any model."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.cached import Advance, Embedded, audio_files, embed_windows
from residual_audio.errors import InputError
from residual_audio.files import write_npz, write_safetensors
from residual_audio.metrics import frechet
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]

STATISTICS_SUFFIXES = (".npz", ".safetensors")


@dataclass(frozen=True)
class Side:
    """One side of the comparison: window vectors, or statistics only."""

    name: str
    gaussian: frechet.Gaussian
    vectors: Array | None
    files: tuple[str, ...] = ()
    """The file of each vector."""
    skipped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """What `compare_sides` finds, with the line behind FAD∞ for a plot."""

    result: Result
    extrapolated: frechet.Extrapolated | None


def read_side(
    source: Path,
    model: Any,
    *,
    batch_size: int = 8,
    cache: bool = True,
    advance: Advance | None = None,
) -> Side:
    """A folder of audio files, or a statistics file made by `write_statistics`."""
    if source.is_file() and source.suffix in STATISTICS_SUFFIXES:
        return read_statistics(source, model)
    files = audio_files(source)
    found = embed_windows(
        model, files, root=source, batch_size=batch_size, cache=cache, advance=advance
    )
    return side_of(found, source.name)


def side_of(found: Embedded, name: str) -> Side:
    """From embedded windows; two are the least that a covariance can be made of."""
    if len(found) < 2:
        raise InputError(
            f"'{name}' gives {len(found)} window of sound: a distance between distributions needs "
            "at least two, and hundreds to mean something"
        )
    vectors = found.vectors.astype(np.float64)
    gaussian = frechet.fit_gaussian(vectors, name)
    return Side(name, gaussian, vectors, found.ids, dict(found.skipped))


def write_statistics(side: Side, model: Any, path: Path) -> None:
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


def read_statistics(path: Path, model: Any = None) -> Side:
    """Statistics of this package, or any `.npz` with mu, sigma and perhaps n.

    Statistics made with other weights than `model`'s are refused: the distance would be a number
    without meaning.
    """
    record: dict[str, Any] = {}
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            if "provenance" in arrays:
                record = json.loads(arrays["provenance"].tobytes())
        else:
            from safetensors import safe_open

            with safe_open(path, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                record = json.loads((file.metadata() or {}).get("provenance", "{}"))
    except Exception as error:  # each reader has its own errors for a damaged file
        raise InputError(f"'{path}' cannot be read as statistics: {error}") from error
    if not {"mu", "sigma"} <= set(arrays):
        raise InputError(f"'{path}' has no mu and sigma: it holds {', '.join(sorted(arrays))}")
    made_with = record.get("model", {}).get("sha256")
    if model is not None and made_with is not None and made_with != model.sha256:
        raise InputError(
            f"'{path}' was made with model '{record['model'].get('name')}', not with '{model.name}'"
        )
    n = int(np.ravel(arrays["n"])[0]) if "n" in arrays else 0
    gaussian = frechet.gaussian_from_statistics(arrays["mu"], arrays["sigma"], n)
    return Side(path.stem, gaussian, None)


def compare_sides(
    reference: Side,
    evaluated: Side,
    model: Any,
    *,
    infinity: bool = True,
    seed: int = 0,
) -> Comparison:
    """FAD, FAD∞, kernel distance and the score of every evaluated file."""
    if evaluated.vectors is None:
        raise InputError("the evaluated side must be a folder of sound, not statistics")
    d = len(reference.gaussian.mean)
    n_ref, n_eval = reference.gaussian.n, evaluated.gaussian.n
    warnings = _warnings(reference, evaluated, d)
    fad = frechet.frechet_distance(reference.gaussian, evaluated.gaussian)
    scores = [Score("fad", fad, np.nan, np.nan, n_eval, None)]

    extrapolated = None
    enough = min(_n_files(evaluated), _n_files(reference) if reference.vectors is not None else 4)
    if infinity and enough >= 4:
        left = reference.gaussian if reference.vectors is None else reference.vectors
        extrapolated = frechet.frechet_infinity(
            left, evaluated.vectors, x_groups=reference.files or None, y_groups=evaluated.files,
            seed=seed,
        )  # fmt: skip
        half = 1.96 * extrapolated.standard_error
        value = extrapolated.value
        scores.append(Score("fad_infinity", value, value - half, value + half, n_eval, 0.0))
        if not extrapolated.both_sides:
            warnings.append(
                "the reference is given as statistics: FAD∞ removes the bias of the evaluated "
                "side, that of the reference remains"
            )
    elif infinity:
        warnings.append(f"FAD∞ needs at least four files on each side, there are {enough}")

    if reference.vectors is not None and min(_n_files(reference), _n_files(evaluated)) >= 2:
        try:
            kernel = frechet.kernel_distance(
                reference.vectors,
                evaluated.vectors,
                x_groups=reference.files,
                y_groups=evaluated.files,
            )
            half = 1.96 * kernel.standard_error
            scores.append(
                Score("mmd", kernel.value, kernel.value - half, kernel.value + half, n_eval, 0.0)
            )
        except InputError as error:  # a constant reference has a mean, but no kernel width
            warnings.append(f"no mmd: {error}")
    files = frechet.file_distances(reference.gaussian, evaluated.vectors, evaluated.files)
    names = list(files)
    # the root is a distance and far less skewed than its square
    flags = frechet.outliers(np.sqrt([files[name] for name in names]))
    result = Result(
        task="fad",
        model=provenance.model_label(model),
        dataset=evaluated.name,
        split=f"against {reference.name}",
        scores=tuple(scores),
        per_item={
            "file": names,
            "distance": [files[name] for name in names],
            "windows": [evaluated.files.count(name) for name in names],
            "outlier": flags.tolist(),
        },
        details={
            "reference": reference.name,
            "n_reference": n_ref,
            "n_evaluated": n_eval,
            "n_files": len(names),
            "dimension": d,
            "outliers": [name for name, flag in zip(names, flags, strict=True) if flag],
            "skipped": {**reference.skipped, **evaluated.skipped},
            "warnings": warnings,
        },
        provenance=provenance.collect(model=model, seed=seed),
    )
    return Comparison(result, extrapolated)


def _n_files(side: Side) -> int:
    return len(set(side.files))


def _warnings(reference: Side, evaluated: Side, d: int) -> list[str]:
    found = []
    for side in (reference, evaluated):
        n = side.gaussian.n
        if n == 0:
            found.append(f"'{side.name}' does not say how many vectors it was made of")
        elif n < 2 * d:
            found.append(
                f"'{side.name}' has {n} windows for {d} dimensions (below 2d = {2 * d}): FAD is "
                "mostly bias at this size, and FAD∞ cannot remove all of it; look at mmd"
            )
    return found
