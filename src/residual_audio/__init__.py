"""ResiDual Audio: look inside CLAP audio encoders, reweight their heads, measure if it helped.

import residual_audio as ra
model = ra.load_model("nano")
audio = model.embed_audio(["dog.wav", "rain.flac"])     # n × d, unit length
text = model.embed_text(["a dog barking", "rain"])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from residual_audio.data.registry import load_dataset as load_dataset
    from residual_audio.extraction.extraction import extract as extract
    from residual_audio.store import open_store as open_store
    from residual_audio.surface.model import load_model as load_model

__version__ = "0.1.0"

# Loaded on first use, so that importing the package costs nothing.
_WHERE = {
    "load_model": "residual_audio.surface.model",
    "load_dataset": "residual_audio.data.registry",
    "extract": "residual_audio.extraction.extraction",
    "open_store": "residual_audio.store",
    "Clip": "residual_audio.types",
    "Gains": "residual_audio.types",
    "Head": "residual_audio.types",
    "Result": "residual_audio.types",
    "Score": "residual_audio.types",
    "Site": "residual_audio.types",
    "Spectrum": "residual_audio.types",
    "ResidualAudioError": "residual_audio.errors",
}
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'residual_audio' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
