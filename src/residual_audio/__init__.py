"""ResiDual Audio: look inside CLAP audio encoders, reweight their heads, measure if it helped.

>>> import residual_audio as ra
>>> model = ra.load_model("nano")
>>> model.embed_text(["a dog barking", "rain"]).shape
(2, 256)
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from residual_audio.adaptation.methods.linear_probe import LinearProbe as LinearProbe
    from residual_audio.adaptation.methods.low_rank import LoRA as LoRA
    from residual_audio.adaptation.methods.residual import ResiDual as ResiDual
    from residual_audio.adaptation.methods.rule import Rule as Rule
    from residual_audio.analysis.result import Analysis as Analysis
    from residual_audio.capture.cache import Cache as Cache
    from residual_audio.data.base import Dataset as Dataset
    from residual_audio.data.registry import load_dataset as load_dataset
    from residual_audio.errors import ResidualAudioError as ResidualAudioError
    from residual_audio.passes.edits import mean as mean
    from residual_audio.passes.edits import patch as patch
    from residual_audio.passes.edits import scale as scale
    from residual_audio.passes.edits import zero as zero
    from residual_audio.reweight.gain_files import load_gains as load_gains
    from residual_audio.reweight.gain_files import save_gains as save_gains
    from residual_audio.store import Store as Store
    from residual_audio.store import open_store as open_store
    from residual_audio.surface.adapted_pairs import adapt_pairs as adapt_pairs
    from residual_audio.surface.atlas_view import atlas as atlas
    from residual_audio.surface.caption_gains import CaptionsAdapted as CaptionsAdapted
    from residual_audio.surface.caption_gains import adapt_captions as adapt_captions
    from residual_audio.surface.clap_embedder import ClapEmbedder as ClapEmbedder
    from residual_audio.surface.classified import classify as classify
    from residual_audio.surface.compared import compare_runs as compare_runs
    from residual_audio.surface.fitted import Adapted as Adapted
    from residual_audio.surface.fitted import adapt as adapt
    from residual_audio.surface.folded import FoldedModel as FoldedModel
    from residual_audio.surface.folded import fold as fold
    from residual_audio.surface.inside import ablate as ablate
    from residual_audio.surface.inside import analyse as analyse
    from residual_audio.surface.measured import evaluate as evaluate
    from residual_audio.surface.model import Model as Model
    from residual_audio.surface.model import load_model as load_model
    from residual_audio.surface.patching import patching as patching
    from residual_audio.surface.patching import time_map as time_map
    from residual_audio.surface.probed import ModelCards as ModelCards
    from residual_audio.surface.probed import compare as compare
    from residual_audio.surface.probed import probe as probe
    from residual_audio.surface.protocols import ProtocolResult as ProtocolResult
    from residual_audio.surface.protocols import protocol as protocol
    from residual_audio.surface.runs import Run as Run
    from residual_audio.surface.runs import extract as extract
    from residual_audio.surface.token_stream import token_stream as token_stream
    from residual_audio.table import Table as Table
    from residual_audio.types import Clip as Clip
    from residual_audio.types import Gains as Gains
    from residual_audio.types import Head as Head
    from residual_audio.types import Result as Result
    from residual_audio.types import Score as Score
    from residual_audio.types import Site as Site
    from residual_audio.types import Spectrum as Spectrum

__version__ = "0.1.0"

# Loaded on first use, so that importing the package costs nothing. A new name is one line here and
# one above.
_WHERE = {
    "Adapted": "residual_audio.surface.fitted",
    "Analysis": "residual_audio.analysis.result",
    "Cache": "residual_audio.capture.cache",
    "CaptionsAdapted": "residual_audio.surface.caption_gains",
    "ClapEmbedder": "residual_audio.surface.clap_embedder",
    "Clip": "residual_audio.types",
    "Dataset": "residual_audio.data.base",
    "FoldedModel": "residual_audio.surface.folded",
    "Gains": "residual_audio.types",
    "Head": "residual_audio.types",
    "LinearProbe": "residual_audio.adaptation.methods.linear_probe",
    "LoRA": "residual_audio.adaptation.methods.low_rank",
    "Model": "residual_audio.surface.model",
    "ModelCards": "residual_audio.surface.probed",
    "ProtocolResult": "residual_audio.surface.protocols",
    "ResiDual": "residual_audio.adaptation.methods.residual",
    "ResidualAudioError": "residual_audio.errors",
    "Result": "residual_audio.types",
    "Rule": "residual_audio.adaptation.methods.rule",
    "Run": "residual_audio.surface.runs",
    "Score": "residual_audio.types",
    "Site": "residual_audio.types",
    "Spectrum": "residual_audio.types",
    "Store": "residual_audio.store",
    "Table": "residual_audio.table",
    "ablate": "residual_audio.surface.inside",
    "adapt": "residual_audio.surface.fitted",
    "adapt_captions": "residual_audio.surface.caption_gains",
    "adapt_pairs": "residual_audio.surface.adapted_pairs",
    "analyse": "residual_audio.surface.inside",
    "atlas": "residual_audio.surface.atlas_view",
    "classify": "residual_audio.surface.classified",
    "compare": "residual_audio.surface.probed",
    "compare_runs": "residual_audio.surface.compared",
    "evaluate": "residual_audio.surface.measured",
    "extract": "residual_audio.surface.runs",
    "fold": "residual_audio.surface.folded",
    "load_dataset": "residual_audio.data.registry",
    "load_gains": "residual_audio.reweight.gain_files",
    "load_model": "residual_audio.surface.model",
    "mean": "residual_audio.passes.edits",
    "open_store": "residual_audio.store",
    "patch": "residual_audio.passes.edits",
    "patching": "residual_audio.surface.patching",
    "probe": "residual_audio.surface.probed",
    "protocol": "residual_audio.surface.protocols",
    "save_gains": "residual_audio.reweight.gain_files",
    "scale": "residual_audio.passes.edits",
    "time_map": "residual_audio.surface.patching",
    "token_stream": "residual_audio.surface.token_stream",
    "zero": "residual_audio.passes.edits",
}
__all__ = sorted(["__version__", *_WHERE])


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'residual_audio' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__


class _Surface(ModuleType):
    """A folder of the package never hides the function of the same name (`ra.patching`)."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _WHERE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Surface
