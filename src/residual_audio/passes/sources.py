"""What the loop reads: clips of a data set, files and waveforms, cut as a model hears them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from residual_audio.audio.decode import load_audio
from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Dataset
from residual_audio.errors import AudioError
from residual_audio.passes.loop import Cut, Windows
from residual_audio.provenance import without_machine_paths
from residual_audio.types import Clip

AudioInput = str | Path | npt.NDArray[Any]
"""A file, or a mono waveform already at the model's sample rate."""


class Hearer(Protocol):
    """As far as cutting windows needs to know a model."""

    @property
    def sample_rate_hz(self) -> int: ...

    def windows(self, samples: npt.NDArray[Any], long: LongPolicy = "first") -> Windows: ...

    def reads_s(self, long: LongPolicy) -> float | None: ...


def cut_clips(model: Hearer, dataset: Dataset, long: LongPolicy) -> Cut[Clip]:
    """Clips of a data set, each read to its end: one that is cut short is found out."""
    return lambda clip: model.windows(dataset.read(clip, model.sample_rate_hz), long)


def cut_inputs(model: Hearer, long: LongPolicy) -> Cut[AudioInput]:
    """Files, decoded as far as the model looks, and waveforms."""

    def cut(item: AudioInput) -> Windows:
        if isinstance(item, str | Path):
            wave = load_audio(Path(item), model.sample_rate_hz, model.reads_s(long))
            return model.windows(wave, long)
        wave = np.asarray(item, np.float32)
        if not np.isfinite(wave).all():
            raise AudioError("a waveform holds NaN or infinite samples")
        return model.windows(wave, long)

    return cut


def reason(error: Exception, clip: Clip) -> str:
    """Why a clip was skipped, without its name, so that like reasons can be counted together."""
    text = str(error)
    names = [clip.id] if clip.path is None else [str(clip.path), clip.path.name, clip.id]
    for name in names:
        text = text.replace(f"'{name}'", "the clip")
    return without_machine_paths(text)
