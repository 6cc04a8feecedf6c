"""Files that are proved when they are read back: a digest beside them, or inside.

`SHA256SUMS` of a folder lists the digests of the files that we wrote there, as `sha256sum -c` reads
them; a JSON document carries its own under `seal`. What has no seal, because somebody else wrote
it, is read as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.files import json_ready, write_safetensors, write_text
from residual_audio.provenance import sha256_file

SUMS = "SHA256SUMS"
SEAL = "seal"


def seal_files(paths: Iterable[Path]) -> list[Path]:
    """Put the digests of these files, as they are now, on the lists of their folders."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        found.setdefault(path.parent, []).append(path)
    lists = []
    for folder, files in found.items():
        with _alone(folder):
            sums = _known(folder / SUMS)
            sums |= {path.name: sha256_file(path) for path in files}
            lists.append(_write(folder, sums))
    return lists


def unseal_file(path: Path) -> None:
    """Take a file off the list of its folder, before what it holds is added to: who is killed
    between writing it and sealing it leaves one without a seal, not one with a wrong one."""
    with _alone(path.parent):
        sums = _known(path.parent / SUMS)
        if sums.pop(path.name, None) is not None:
            _write(path.parent, sums)


def _write(folder: Path, sums: Mapping[str, str]) -> Path:
    there = {name: sums[name] for name in sorted(sums) if (folder / name).is_file()}
    lines = [f"{digest}  {name}\n" for name, digest in there.items()]
    return write_text(folder / SUMS, "".join(lines))


def is_sealed(path: Path) -> bool:
    """Whether the list beside it has a digest of this file."""
    return path.name in _known(path.parent / SUMS)


def prove_file(path: Path, error: type[ResidualAudioError] = InputError) -> Path:
    """The path, or an error where the file is not what was written; one without a seal passes."""
    sums = path.parent / SUMS
    if not sums.is_file():
        return path
    try:
        wanted = _listed(sums).get(path.name)
    except ValueError as reason:
        raise error(f"'{sums}' is damaged: it is no list of digests. Remove it") from reason
    if wanted is not None and path.is_file() and sha256_file(path) != wanted:
        raise error(
            f"'{path}' is not what was written: its sha256 is not the one in {SUMS}. Make it "
            f"again; if you changed it on purpose, remove its line from '{sums}'"
        )
    return path


def sealed(document: Mapping[str, object]) -> dict[str, object]:
    """A JSON document with its digest."""
    return {**document, SEAL: _seal_of(document)}


def prove_document(
    document: Mapping[str, object], where: Path, error: type[ResidualAudioError] = InputError
) -> None:
    """An error where a document with a seal is not what was written."""
    if SEAL in document and document[SEAL] != _seal_of(document):
        raise error(
            f"'{where}' is not what was written: its seal does not fit. Make it again; if you "
            f"changed it on purpose, remove its '{SEAL}'"
        )


def write_sealed_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Named arrays with their digest in the header of the file."""
    return write_safetensors(path, arrays, {"sha256": _arrays_digest(arrays)})


def read_sealed_arrays(
    path: Path, error: type[ResidualAudioError] = InputError
) -> dict[str, np.ndarray]:
    """What `write_sealed_arrays` wrote; one without a digest is read as it is."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as reason:
        raise error(f"'{path}' cannot be read: {reason}") from reason
    if "sha256" in header and header["sha256"] != _arrays_digest(arrays):
        raise error(f"'{path}' is damaged: it is not what was written")
    return arrays


def _seal_of(document: Mapping[str, object]) -> str:
    held = {key: value for key, value in document.items() if key != SEAL}
    text = json.dumps(json_ready(held), sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _arrays_digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, np.shape(arrays[name])]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _listed(sums: Path) -> dict[str, str]:
    lines = sums.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def _known(sums: Path) -> dict[str, str]:
    """Nothing where there is no list, or none that can be read: the rest passes without a seal."""
    try:
        return _listed(sums)
    except (OSError, ValueError):
        return {}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two commands at one run add to one list: one after the other, where the system can."""
    if os.name != "posix":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
