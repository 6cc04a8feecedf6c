"""Model folders on disk: written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.files import read_json_object, replacing_folder
from residual_audio.provenance import sha256_file

WEIGHTS = "model.safetensors"
SUMS = "SHA256SUMS"
"""Digests of the other files of a folder, as `sha256sum -c` reads them."""


def read_model_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    if not path.is_file():
        raise ModelError(f"'{path.parent}' has no {path.name}: is it a model folder?")
    return read_json_object(path, ModelError)


def write_folder(
    out: Path,
    state: Mapping[str, Tensor],
    files: Mapping[str, str],
    tokenizer_of: object = None,
    weights: str = WEIGHTS,
) -> None:
    """Write weights and text files to a temporary folder beside `out`, then move it into place."""
    from safetensors.torch import save_file

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"'{out}' exists and is not an empty folder: nothing was written")
    with replacing_folder(out) as work:
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in state.items()}
        save_file(tensors, work / weights, metadata={"format": "pt"})
        for name, text in files.items():
            (work / name).write_text(text + "\n", encoding="utf-8")
        if tokenizer_of is not None:
            _copy_tokenizer(tokenizer_of, work)
        _write_sums(work)


def _copy_tokenizer(text: Any, folder: Path) -> None:
    """Tokenizer files, where they can be had; a model without them still loads and says so."""
    try:
        text.save_tokenizer(folder)
    except ModelError:
        return


def _write_sums(folder: Path) -> None:
    lines = [f"{sha256_file(path)}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path) -> None:
    """Refuse a folder with a file that is not what was written; folders without sums pass."""
    path = folder / SUMS
    if not path.is_file():
        return
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        wanted = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except ValueError as error:
        raise ModelError(f"'{path}' is damaged: it is not a list of digests") from error
    for name in (WEIGHTS, "config.json"):
        if name not in wanted:
            raise ModelError(f"'{path}' is damaged: it does not list {name}")
    for name, digest in wanted.items():
        file = folder / name
        if file.name != name:
            raise ModelError(f"'{path}' names '{name}', which is not a file of its folder")
        if not file.is_file():
            raise ModelError(f"'{file}' is missing: {SUMS} lists it")
        if sha256_file(file) != digest:
            raise ModelError(
                f"'{file}' is not what was written: its sha256 is not the one in {SUMS}. Copy the "
                f"model again; if you changed it on purpose, remove {SUMS}"
            )


def said_type(config: Mapping[str, Any]) -> str:
    """What a config says that it is of, as part of a sentence."""
    kind = config.get("model_type")
    return f"is a '{kind}' model" if kind else "has a config.json that names no model_type"
