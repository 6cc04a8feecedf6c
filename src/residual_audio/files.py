"""Files that are all there or not there, and JSON that every reader accepts."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residual_audio.errors import InputError, ResidualAudioError

if TYPE_CHECKING:
    from pyarrow import Table

TEMPORARY = ".tmp"


def cache_dir() -> Path:
    """`RESIDUAL_AUDIO_CACHE`, or the usual place in the user's home."""
    given = os.environ.get("RESIDUAL_AUDIO_CACHE")
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "residual-audio"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; it takes the place of `path` only when complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # some writers leave files that only their owner can read
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> Path:
    with replacing(path) as temporary:
        temporary.write_bytes(data)
    return path


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> Path:
    """As UTF-8 JSON; what is no JSON type is made one by `json_ready`."""
    text = json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False)
    return write_text(path, text + "\n")


def write_safetensors(
    path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, str] | None = None
) -> Path:
    """Named arrays and a header of strings.

    Through bytes: the library's own writer leaves a temporary file behind when it is killed.
    """
    return write_bytes(path, safetensors_bytes(arrays, header))


def safetensors_bytes(
    arrays: Mapping[str, np.ndarray], header: Mapping[str, str] | None = None
) -> bytes:
    """What `write_safetensors` writes, for those who record its digest."""
    from safetensors.numpy import save

    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(whole, dict(header) if header else None)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Named arrays as numpy's own archive, without pickles."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]
    return path


def write_parquet(path: Path, table: Table) -> Path:
    """A table of pyarrow."""
    from pyarrow import parquet

    with replacing(path) as temporary:
        parquet.write_table(table, temporary)
    return path


def read_json(path: Path, error: type[ResidualAudioError] = InputError) -> Any:
    """Any JSON document, with or without a byte order mark, or an error that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise error(f"no file '{path}'") from None
    except (ValueError, OSError) as reason:
        raise error(f"'{path}' is not readable JSON: {reason}") from reason


def read_json_object(path: Path, error: type[ResidualAudioError] = InputError) -> dict[str, Any]:
    """The same where only an object makes sense."""
    value = read_json(path, error)
    if not isinstance(value, dict):
        raise error(f"'{path}' holds a {type(value).__name__}, not an object")
    return value


def json_ready(value: Any, text: Callable[[str], str] = str) -> Any:
    """JSON types only: arrays become lists, settings objects, NaN and infinities null, sets sorted.

    `text` is applied to every string that is a value.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # arrays, their numbers, tensors
        return json_ready(value.tolist(), text)
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_ready(getattr(value, f.name), text) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): json_ready(item, text) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(json_ready(item, text) for item in value)
    if isinstance(value, Iterable):
        return [json_ready(item, text) for item in value]
    return text(str(value))
