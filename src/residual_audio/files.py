"""Files that are all there or not there, and JSON that every reader accepts."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.errors import InputError

TEMPORARY = ".tmp"


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
    """As UTF-8 JSON; NaN and infinities become null, arrays lists."""
    text = json.dumps(json_ready(value), indent=2, ensure_ascii=False, allow_nan=False)
    return write_text(path, text + "\n")


def read_json(path: Path) -> Any:
    """Any JSON document, or an error that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no file '{path}'") from error
    except (ValueError, OSError) as error:
        raise InputError(f"'{path}' is not readable JSON: {error}") from error


def json_ready(value: Any) -> Any:
    """JSON types only; strings stay as they are."""
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return json_ready(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Iterable):
        return [json_ready(item) for item in value]
    return str(value)
