"""Writing a loaded model in one of the layouts people open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from residual_audio.errors import InputError
from residual_audio.models import hf, laion, native, onnx_tower
from residual_audio.models.clap import AudioTextModel

WRITERS: dict[str, Callable[[AudioTextModel, Path], object]] = {
    "native": native.save,
    "hf": hf.save,
    "laion": laion.save,
    "onnx": onnx_tower.save,
}


def write_model(model: AudioTextModel, out: Path, layout: str) -> None:
    """`native`, `hf` and `onnx` write a folder, `laion` a file."""
    if layout not in WRITERS:
        raise InputError(f"unknown layout '{layout}': use {', '.join(WRITERS)}")
    WRITERS[layout](model, out)
