"""Model folders on disk: written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.files import read_json_object

WEIGHTS = "model.safetensors"


def read_model_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    if not path.is_file():
        raise ModelError(f"'{path.parent}' has no {path.name}: is it a model folder?")
    return read_json_object(path, ModelError)


def write_folder(
    out: Path, state: Mapping[str, Tensor], files: Mapping[str, str], tokenizer_of: Any = None
) -> None:
    """Write weights and text files to a temporary folder beside `out`, then move it into place."""
    from safetensors.torch import save_file

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"'{out}' exists and is not an empty folder: nothing was written")
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in state.items()}
        save_file(tensors, work / WEIGHTS, metadata={"format": "pt"})
        for name, text in files.items():
            (work / name).write_text(text + "\n", encoding="utf-8")
        if tokenizer_of is not None:
            _copy_tokenizer(tokenizer_of, work)
        for path in work.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            path.chmod(0o644)  # safetensors leaves files that only their owner can read
        work.chmod(0o755)
        if out.exists():
            out.rmdir()
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


def _copy_tokenizer(text: Any, folder: Path) -> None:
    """Tokenizer files, where they can be had; a model without them still loads and says so."""
    try:
        text.save_tokenizer(folder)
    except ModelError:
        return
