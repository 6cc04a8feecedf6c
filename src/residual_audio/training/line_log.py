"""Files of a training run: safetensors written whole or not at all, and lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from residual_audio.errors import StoreError
from residual_audio.files import write_bytes


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    from safetensors.numpy import save

    write_bytes(path, save({key: np.ascontiguousarray(value) for key, value in arrays.items()}))


def read_arrays(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise StoreError(f"'{path}' is not a readable safetensors file: {error}") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    write_bytes(
        path, save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise StoreError(f"'{path}' is not a readable safetensors file: {error}") from error


class LineLog:
    """A JSONL file that can be cut back to a step, so that a resumed run has each step once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut(self, step: int) -> None:
        """Forget lines after `step`."""
        if not self.path.is_file():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line)
            except (ValueError, KeyError):
                continue  # a line cut short by a crash
        write_bytes(self.path, "".join(f"{line}\n" for line in kept).encode())

    def write(self, record: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
