"""One door to every model: `load_model("family:reference")`."""

from __future__ import annotations

import difflib
import importlib
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from residual_audio.errors import ModelError
from residual_audio.models import native
from residual_audio.models.allowance import Allowance
from residual_audio.models.clap import AudioTextModel, choose_device
from residual_audio.models.families import FAMILIES, NANO
from residual_audio.models.proof import prove
from residual_audio.models.sounding import SOUNDING, pool_where_it_sounds

_MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What reading a config that is none, or weights of other shapes, ends in."""


def load_model(name: str, device: str | torch.device = "auto") -> AudioTextModel:
    """Load, move to the device and prove a model.

    `nano` is the bundled one; a folder written by `models convert` loads by its path; everything
    else is `family:reference`, e.g. `hf:laion/clap-htsat-unfused` or `laion:checkpoint.pt`.
    `?pool=sounding` behind a Whisper encoder leaves out positions that hear only padding.
    """
    plain = name.removesuffix(SOUNDING)
    model = _read(plain)
    if plain != name:
        pool_where_it_sounds(model)
    model.name = name
    model.to(choose_device(device))
    prove(model)
    return model


def _read(name: str) -> AudioTextModel:
    if name == "nano":
        if not (NANO / "config.json").is_file():
            raise ModelError("this build does not carry the bundled model 'nano'")
        return native.load(NANO, name)
    prefix, _, reference = name.partition(":")
    if prefix in FAMILIES:
        module = importlib.import_module(f"residual_audio.models.{FAMILIES[prefix].module}")
        if not reference and FAMILIES[prefix].needs_reference:
            raise ModelError(
                f"'{name}' lacks a reference: write {prefix}:<{FAMILIES[prefix].reference}>"
            )
        try:
            with _allowed(reference):
                return module.load(reference)
        except _MALFORMED as error:
            raise ModelError(
                f"'{name}' cannot be read as {FAMILIES[prefix].title}: its config or weights are "
                f"not of that form ({type(error).__name__}: {error})"
            ) from error
    folder = Path(name).expanduser()
    if folder.is_dir() and native.is_native(folder):
        return native.load(folder, name)
    if hint := _hint(name):
        raise ModelError(f"unknown model '{name}': {hint} `residual-audio models` lists all kinds")
    known = ", ".join(["nano", *(f"{family}:…" for family in FAMILIES)])
    raise ModelError(f"unknown model '{name}'; known: {known}, or a converted folder")


def _allowed(reference: str) -> AbstractContextManager[object]:
    """Modules built from a stranger's config take no more than the files beside it could fill."""
    path = Path(reference.partition("?")[0]).expanduser()
    if not reference or not path.exists():  # of the Hub, or of no file at all
        return nullcontext()
    files = path.rglob("*") if path.is_dir() else [path]
    return Allowance(str(path), sum(file.stat().st_size for file in files if file.is_file()))


def _hint(name: str) -> str:
    """What somebody who wrote this may have meant."""
    path = Path(name).expanduser()
    if path.is_dir():
        return f"did you mean hf:{name}? (a transformers folder is opened with hf:<folder>)"
    if path.suffix in (".pt", ".pth", ".ckpt"):
        return f"did you mean laion:{name}, msclap:{name}, mga:{name} or m2d:{name}?"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return f"did you mean hf:{name}?"
    near = difflib.get_close_matches(name.partition(":")[0], ["nano", *FAMILIES], n=1)
    return f"did you mean {near[0]}?" if near else ""
