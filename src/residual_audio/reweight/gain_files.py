"""Gains on disk: λ in a file of a few kB, its spectra beside it, and a card that people can read.

name.safetensors           λ of every unit in one row, and the sha256 of the spectra
name.spectra.safetensors   mean, basis and eigenvalues of every unit, and its readers and their
                           moment where it has some
name.json                  the card: model, data, how it was fitted, what moved most

The atlas saves one file: the bytes of the spectra lie in `name.safetensors` itself, as `spectra`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.files import parse_json, write_bytes, write_json, write_safetensors
from residual_audio.reweight.gains import check_gains, moved, n_gains
from residual_audio.reweight.uncorrelated import Uncorrelated
from residual_audio.types import FloatArray, Gains, Spectrum

FORMAT = "residual-audio-gains"
SCHEMA_VERSION = 4
READABLE = ("1", "2", "3", "4")
"""Version 1 had no digest of λ, readers of their own came with the third and their moment with the
fourth: components of the third were uncorrelated over all clips."""

OF_READERS = ("readers", "moment")
"""What is written of a unit that has readers of its own."""


def save_gains(gains: Gains, path: Path) -> Path:
    """Write the three files and return the path of the first.

    >>> import tempfile, numpy as np
    >>> spectrum = Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    >>> gains = Gains({"s3.b1.h0": np.ones(12)}, {"s3.b1.h0": spectrum})
    >>> save_gains(gains, Path(tempfile.mkdtemp()) / "mine").name
    'mine.safetensors'
    """
    path = gains_path(path)
    check_gains(gains)
    units = list(gains.gains)
    spectra = _spectra_bytes({unit: gains.spectra[unit] for unit in units})
    digest = hashlib.sha256(spectra).hexdigest()
    header = {
        "format": FORMAT,
        "schema_version": str(SCHEMA_VERSION),
        "units": json.dumps({unit: len(gains.gains[unit]) for unit in units}),
        "keep_mean": json.dumps(gains.keep_mean),
        "path": gains.path,
        "means": json.dumps({unit: float(value) for unit, value in gains.means.items()}),
        "spectra_sha256": digest,
        "fitted_on": json.dumps(provenance.plain(dict(gains.fitted_on))),
    }
    flat = np.concatenate([np.asarray(gains.gains[unit], np.float32) for unit in units])
    header["sha256"] = _digest(header, flat)
    card = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "path": gains.path,
        "keep_mean": gains.keep_mean,
        "n_gains": n_gains(gains),
        "n_units": len(units),
        "spectra_sha256": digest,
        "fitted_on": provenance.plain(dict(gains.fitted_on)),
        "moved_most": provenance.plain(moved(gains)),
        "written_by": provenance.collect(),
    }
    write_bytes(spectra_path(path), spectra)
    write_json(path.with_suffix(".json"), card)
    write_safetensors(path, {"gains": flat}, header)
    return path


def load_gains(path: Path) -> Gains:
    """Read what `save_gains` wrote; damaged, mismatched or missing parts are errors.

    >>> import tempfile, numpy as np
    >>> spectrum = Spectrum(np.zeros(12), np.eye(12), np.ones(12), 100)
    >>> gains = Gains({"s3.b1.h0": np.ones(12)}, {"s3.b1.h0": spectrum})
    >>> load_gains(save_gains(gains, Path(tempfile.mkdtemp()))).path
    'network'
    """
    path = gains_path(path)
    header, tensors = _read(path, "gains")
    if header.get("format") != FORMAT or "gains" not in tensors:
        raise InputError(f"'{path}' is not a gains file of this project")
    if header.get("schema_version") not in READABLE:
        raise InputError(
            f"'{path}' has schema version {header.get('schema_version')}; "
            f"this release reads {' and '.join(READABLE)}"
        )
    if header["schema_version"] != "1" and header.get("sha256") != _digest(
        header, tensors["gains"]
    ):
        raise InputError(f"'{path}' is damaged: it is not what was written. Copy it again")
    about, arrays = _spectra_of(path, header, tensors.get("spectra"))
    try:
        return _put_together(header, tensors["gains"], about, arrays)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"'{path}' does not hold whole gains: {error}") from error


def _spectra_of(
    path: Path, header: Mapping[str, str], inside: FloatArray | None
) -> tuple[dict[str, str], dict[str, FloatArray]]:
    """The spectra in the file itself, or else beside it, if they are those it was saved with."""
    beside = spectra_path(path)
    if inside is None and not beside.is_file():
        raise InputError(f"'{path}' needs its spectra beside it: there is no '{beside.name}'")
    data = beside.read_bytes() if inside is None else inside.tobytes()
    if hashlib.sha256(data).hexdigest() != header.get("spectra_sha256"):
        if inside is not None:
            raise InputError(f"'{path}' is damaged: it is not what was written. Copy it again")
        raise InputError(f"'{beside}' is not the file that '{path.name}' was saved with")
    if inside is None:
        return _read(beside, "spectra")
    try:
        size = int.from_bytes(data[:8], "little")
        return json.loads(data[8 : 8 + size]).get("__metadata__", {}), load(data)
    except (SafetensorError, ValueError) as error:
        raise InputError(f"the spectra in '{path}' cannot be read: {error}") from error


def _put_together(
    header: Mapping[str, str],
    flat: FloatArray,
    about: Mapping[str, str],
    arrays: Mapping[str, FloatArray],
) -> Gains:
    counts = parse_json(about["n"])
    gains: dict[str, FloatArray] = {}
    spectra: dict[str, Spectrum] = {}
    start = 0
    for unit, size in parse_json(header["units"]).items():
        gains[unit] = flat[start : start + size]
        start += size
        mean, basis, values = (arrays[f"{p}/{unit}"] for p in ("mean", "basis", "eigenvalues"))
        spectra[unit] = Spectrum(mean, basis, values, int(counts[unit]))
        if f"readers/{unit}" in arrays:
            readers, moment = arrays[f"readers/{unit}"], arrays.get(f"moment/{unit}")
            if moment is None:
                moment = np.diag(values / np.square(basis).sum(1))
            spectra[unit] = Uncorrelated(mean, basis, values, int(counts[unit]), readers, moment)
    return check_gains(
        Gains(
            gains,
            spectra,
            keep_mean=parse_json(header["keep_mean"]),
            path=header["path"],  # type: ignore[arg-type]
            fitted_on=parse_json(header["fitted_on"]),
            means=parse_json(header.get("means", "{}")),
        )
    )


def _digest(header: Mapping[str, str], flat: FloatArray) -> str:
    said = {key: value for key, value in header.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(flat, np.float32).tobytes())
    return digest.hexdigest()


def find_gains(path: Path) -> Path:
    """The gains that a file, a folder or a run holds; several of them are named, not guessed."""
    path = Path(path).expanduser()
    if not path.is_dir():
        return gains_path(path)
    folder = path / "gains" if (path / "gains").is_dir() else path
    found = [p for p in sorted(folder.glob("*.safetensors")) if not _are_spectra(p)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"there are no gains in '{folder}': make some with `reweight fit`")
    names = ", ".join(p.stem for p in found)
    raise InputError(f"there are {len(found)} gains in '{folder}': give one of {names}")


def _are_spectra(path: Path) -> bool:
    return path.name.endswith(".spectra.safetensors")


def gains_path(path: Path) -> Path:
    """`x`, `x.json` and `x.safetensors` all name the gains `x.safetensors`."""
    path = Path(path)
    if path.is_dir():
        path = path / "gains"
    return path if path.suffix == ".safetensors" else path.with_suffix(".safetensors")


def spectra_path(path: Path) -> Path:
    return path.with_suffix(".spectra.safetensors")


def _spectra_bytes(spectra: Mapping[str, Spectrum]) -> bytes:
    # float32 holds a basis to 1e-7, which is what folding into float32 weights can use
    arrays = {}
    for unit, spectrum in spectra.items():
        own = OF_READERS if isinstance(spectrum, Uncorrelated) else ()
        for part in ("mean", "basis", "eigenvalues", *own):
            value = np.asarray(getattr(spectrum, part), np.float32)
            arrays[f"{part}/{unit}"] = np.ascontiguousarray(value)
    return save(arrays, {"n": json.dumps({unit: s.n for unit, s in spectra.items()})})


def _read(path: Path, what: str) -> tuple[dict[str, str], dict[str, FloatArray]]:
    if not path.is_file():
        raise InputError(f"there is no {what} file '{path}'")
    try:
        with safe_open(path, "numpy") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"'{path}' cannot be read as {what}: {error}") from error
