"""One door to every model: `load_model("family:reference")`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

import torch

from residual_audio.errors import ModelError
from residual_audio.models import native
from residual_audio.models.clap import AudioTextModel, choose_device
from residual_audio.models.proof import prove


@dataclass(frozen=True)
class Family:
    """A kind of checkpoint that can be loaded."""

    prefix: str
    title: str
    reference: str
    module: str


FAMILIES = {
    family.prefix: family
    for family in (
        Family("hf", "Hugging Face ClapModel", "repository id or folder", "hf"),
        Family("laion", "LAION-CLAP", "file.pt", "laion"),
        Family("msclap", "Microsoft CLAP 2023", "file.pth", "msclap"),
        Family("mga", "MGA-CLAP", "file.pt", "mga"),
        Family("m2d", "M2D-CLAP (ViT)", "folder or file.pth[?features=stacked]", "m2d"),
        Family("ast", "Audio Spectrogram Transformer, audio only", "folder or id", "ast"),
        Family("whisper", "Whisper encoder, audio only", "folder or id", "whisper"),
        Family(
            "htsat-tiny-random", "HTS-AT tiny, random weights", "seed (optional)", "random_htsat"
        ),
    )
}
NANO = Path(__file__).parent / "nano"


def load_model(name: str, device: str | torch.device = "auto") -> AudioTextModel:
    """Load, move to the device and prove a model.

    `nano` is the bundled one; a folder written by `models convert` loads by its path; everything
    else is `family:reference`, e.g. `hf:laion/clap-htsat-unfused` or `laion:checkpoint.pt`.
    """
    model = _read(name)
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
        if not reference and prefix != "htsat-tiny-random":
            raise ModelError(
                f"'{name}' lacks a reference: write {prefix}:<{FAMILIES[prefix].reference}>"
            )
        return module.load(reference)
    folder = Path(name).expanduser()
    if folder.is_dir() and native.is_native(folder):
        return native.load(folder, name)
    known = ", ".join(["nano", *(f"{family}:…" for family in FAMILIES)])
    hint = " (a transformers folder is opened with hf:<folder>)" if folder.is_dir() else ""
    raise ModelError(f"unknown model '{name}'{hint}; known: {known}, or a converted folder")
