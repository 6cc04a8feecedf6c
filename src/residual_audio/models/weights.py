"""Safe reading of checkpoints: safetensors as they are, pickles only as plain tensors."""

from __future__ import annotations

import hashlib
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residual_audio.errors import ModelError

StateDict = dict[str, Tensor]


def sha256_of(*paths: Path) -> str:
    """One digest over the bytes of the given files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def require_file(path: str | Path, what: str) -> Path:
    """The path, or an error that says what is missing."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder; {what} is a file")
    if not path.is_file():
        raise ModelError(f"no file '{path}': {what} was expected there")
    return path


def read_safetensors(path: Path, prefix: str = "") -> StateDict:
    """The tensors whose names begin with `prefix`; others are not read from the disk."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys() if key.startswith(prefix)}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"'{path}' is not a readable safetensors file: {error}") from error


def safetensors_names(path: Path) -> list[str]:
    """Names of the tensors in a file, whose values are not read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (SafetensorError, OSError) as error:
        raise ModelError(f"'{path}' is not a readable safetensors file: {error}") from error


def read_pickle(path: Path, allow: Iterable[type] = ()) -> Any:
    """A pickled checkpoint as tensors and plain containers; nothing in it is ever executed.

    `weights_only` refuses every global but tensors; the allow-list adds the numpy scalars that
    optimizers leave in released checkpoints, and `allow` plain containers that a family is known
    to use. There is no fallback.
    """
    import numpy as np

    if _torch_version() < (2, 10):
        raise ModelError(
            f"pickled checkpoints are only read with torch ≥ 2.10 (this is {torch.__version__}): "
            "its weights_only loader closes known holes"
        )
    scalar = np._core.multiarray.scalar  # type: ignore[attr-defined]
    allowed: list[Any] = [
        (scalar, "numpy.core.multiarray.scalar"),
        (scalar, "numpy._core.multiarray.scalar"),
        np.dtype,
        np.dtypes.Float64DType,
        np.dtypes.Float32DType,
        np.dtypes.Int64DType,
        *allow,
    ]
    _check_archive(path)
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about protocols; what matters is raised
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except Exception as error:  # the unpickler raises many kinds; all mean the same to the caller
        raise ModelError(
            f"'{path}' is not a checkpoint of plain tensors{_forbidden(error)}: it was not loaded, "
            "and nothing in it was executed. If you trust its source, convert it to safetensors "
            "with the code that wrote it."
        ) from error


def _forbidden(error: Exception) -> str:
    """What a pickle asked for besides tensors. The rest of torch's message is advice to load it
    unsafely, which nobody should read here."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return f" (it asks for {found[1]})" if found else ""


def read_checkpoint(path: Path, inside: str, allow: Iterable[type] = ()) -> StateDict:
    """Tensors of a released checkpoint: safetensors, or a pickle that holds them under `inside`."""
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    found = read_pickle(path, allow)
    state = found.get(inside, found) if isinstance(found, dict) else None
    if not isinstance(state, dict):
        raise ModelError(f"'{path}' holds a {type(found).__name__}, not named tensors")
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}


def _torch_version() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _check_archive(path: Path) -> None:
    """Members of an archive carry checksums, which torch does not look at."""
    if not _is_zip(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelError(f"'{path}' is damaged: {error}. Copy or download it again") from error
    if damaged is not None:
        raise ModelError(
            f"'{path}' is damaged: the checksum of its part '{damaged}' is wrong. Copy or download "
            "it again"
        )


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def below(state: Mapping[str, Tensor], prefix: str) -> StateDict:
    """The entries below a prefix, with the prefix taken off."""
    return {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}


def load_strict(
    module: nn.Module, state: Mapping[str, Tensor], where: str, ignore: Iterable[str] = ()
) -> None:
    """Load every tensor, or say which are missing, left over or of the wrong shape."""
    ignored = tuple(ignore)
    given = {key: value for key, value in state.items() if not any(part in key for part in ignored)}
    wanted = module.state_dict()
    optional = {
        key
        for key in wanted
        if key.endswith("num_batches_tracked") or any(part in key for part in ignored)
    }
    missing = sorted(wanted.keys() - given.keys() - optional)
    unknown = sorted(given.keys() - wanted.keys())
    shapes = sorted(
        f"{key}: {tuple(given[key].shape)} instead of {tuple(wanted[key].shape)}"
        for key in wanted.keys() & given.keys()
        if given[key].shape != wanted[key].shape
    )
    problems = [
        f"{title}: {_some(items)}"
        for title, items in (("missing", missing), ("unknown", unknown), ("wrong shape", shapes))
        if items
    ]
    if problems:
        raise ModelError(f"{where} does not hold what it should; " + "; ".join(problems))
    module.load_state_dict({key: given[key] for key in wanted.keys() & given.keys()}, strict=False)


def _some(items: list[str], most: int = 8) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def get(state: Mapping[str, Tensor], key: str, where: str) -> Tensor:
    """One tensor that shapes the model, or an error that names it."""
    if key not in state:
        raise ModelError(f"{where} has no tensor '{key}': it is not a checkpoint of this family")
    return state[key]
