"""Arrays in files: written whole or not at all, read one at a time, checked when they are read."""

from __future__ import annotations

import hashlib
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
_HEADER_MAX = 100_000_000  # as the format itself allows


def remove_temporary(folder: Path) -> None:
    """What a killed run left half-written."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink(missing_ok=True)


def write_tensors(path: Path, arrays: Mapping[str, Array], note: object = None) -> None:
    """A safetensors file. One metadata key only: with several their order on disk is random."""
    metadata = None if note is None else {"note": json.dumps(note, sort_keys=True)}
    write_safetensors(path, arrays, metadata)


class TensorFile:
    """A safetensors file: its header at once, an array when it is asked for.

    Read, never mapped: a file that another process cuts short then gives an error, where a mapped
    one would end the program.
    """

    def __init__(self, path: Path, data: bytes | None = None) -> None:
        """`data` are the file's bytes, where somebody has read them already."""
        self.path = path
        self._data = data
        self._digests: Mapping[str, str] = {}
        try:
            self._n_bytes = path.stat().st_size if data is None else len(data)
            size = int.from_bytes(self._read(0, 8), "little")
            if size > min(_HEADER_MAX, self._n_bytes - 8):
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(self._read(8, size).tobytes())
            self._header: dict[str, Any] = header if isinstance(header, dict) else {}
            metadata = self._header.pop("__metadata__", None) or {}
            self.note: Any = json.loads(metadata["note"]) if "note" in metadata else None
        except FileNotFoundError as error:
            raise StoreError(f"'{path.name}' is missing from the store") from error
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"'{path.name}' is damaged: its header cannot be read") from error
        self._payload = 8 + size

    def expect(self, digests: Mapping[str, str]) -> None:
        """From here on an array that does not match its sha256 is an error."""
        self._digests = digests

    @property
    def names(self) -> list[str]:
        return sorted(self._header)

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._entry(name)[1])

    def dtype(self, name: str) -> np.dtype[Any]:
        return self._entry(name)[0]

    def __getitem__(self, name: str) -> Array:
        dtype, shape, start, end = self._entry(name)
        try:
            found = self._read(start, end - start)
        except OSError as error:
            raise StoreError(f"'{self.path.name}' cannot be read: {error}") from error
        if name in self._digests and array_sha256(found) != self._digests[name]:
            raise StoreError(
                f"'{self.path}' is damaged: the array '{name}' is not what was written. Run the "
                "same `extract` again, it makes damaged shards anew"
            )
        return found.view(dtype).reshape(shape)

    def _entry(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
        """Type, shape, and first and last byte in the file."""
        try:
            entry = self._header[name]
            dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(map(int, entry["shape"]))
            start, end = (self._payload + int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"'{self.path.name}' has no readable array '{name}'") from error
        inside = self._payload <= start <= end <= self._n_bytes
        if (
            not inside
            or min(shape, default=0) < 0
            or end - start != dtype.itemsize * math.prod(shape)
        ):
            raise StoreError(f"'{self.path.name}' is damaged at the array '{name}'")
        return dtype, shape, start, end

    def _read(self, start: int, size: int) -> npt.NDArray[np.uint8]:
        if self._data is not None:
            return np.frombuffer(self._data, np.uint8, size, start)
        found = np.empty(size, np.uint8)
        with self.path.open("rb") as file:
            file.seek(start)
            n = file.readinto(found.data)
        if n != size:
            raise StoreError(f"'{self.path.name}' is damaged: it was cut short")
        return found


def array_sha256(array: Array) -> str:
    """Of the values alone; type and shape are the header's."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest()
