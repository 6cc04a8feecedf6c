"""Arrays in files: written whole or not at all, read without loading them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import StoreError
from residual_audio.files import TEMPORARY, write_safetensors

Array = npt.NDArray[Any]

_DTYPES = {
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "I64": "<i8",
    "I32": "<i4",
    "U8": "|u1",
    "BOOL": "|b1",
}


def remove_temporary(folder: Path) -> None:
    """What a killed run left half-written."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(TEMPORARY)


def write_tensors(path: Path, arrays: Mapping[str, Array], note: Any = None) -> None:
    """A safetensors file. One metadata key only: with several their order on disk is random."""
    metadata = None if note is None else {"note": json.dumps(note, sort_keys=True)}
    write_safetensors(path, arrays, metadata)


class TensorFile:
    """A safetensors file mapped into memory: only what is looked at is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._bytes = np.memmap(path, np.uint8, mode="r")
            size = int.from_bytes(self._bytes[:8].tobytes(), "little")
            header = json.loads(self._bytes[8 : 8 + size].tobytes())
        except FileNotFoundError as error:
            raise StoreError(f"'{path.name}' is missing from the store") from error
        except (OSError, ValueError) as error:
            raise StoreError(f"'{path.name}' is damaged: its header cannot be read") from error
        self._payload = 8 + size
        self._header: dict[str, Any] = header if isinstance(header, dict) else {}
        metadata = self._header.pop("__metadata__", None) or {}
        self.note: Any = json.loads(metadata["note"]) if "note" in metadata else None

    @property
    def names(self) -> list[str]:
        return sorted(self._header)

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._header[name]["shape"])

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(_DTYPES[self._header[name]["dtype"]])

    def __getitem__(self, name: str) -> Array:
        try:
            entry = self._header[name]
            dtype, shape = self.dtype(name), self.shape(name)
            start, end = (self._payload + int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"'{self.path.name}' has no readable array '{name}'") from error
        inside = self._payload <= start <= end <= len(self._bytes)
        if not inside or end - start != dtype.itemsize * math.prod(shape):
            raise StoreError(f"'{self.path.name}' is damaged at the array '{name}'")
        return np.asarray(self._bytes[start:end]).view(dtype).reshape(shape)
