"""What the loop reads: clips of a data set, files and waveforms, cut as a model hears them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from residual_audio.audio.decode import Samples, SoundBytes, load_audio, resample
from residual_audio.audio.oddities import oddity
from residual_audio.audio.spans import load_span, stream_windows
from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Dataset
from residual_audio.errors import AudioError, InputError
from residual_audio.passes.loop import Cut, Windows
from residual_audio.provenance import without_machine_paths
from residual_audio.types import Clip

AudioInput = str | Path | npt.NDArray[Any]
"""A file, or a mono waveform [sample] whose rate is said beside it."""


class Hearer(Protocol):
    """As far as cutting windows needs to know a model."""

    @property
    def sample_rate_hz(self) -> int: ...

    @property
    def window_s(self) -> float: ...

    def windows(self, samples: npt.NDArray[np.floating], long: LongPolicy = "first") -> Windows: ...

    def reads_s(self, long: LongPolicy) -> float | None: ...


def cut_clips(
    model: Hearer,
    dataset: Dataset,
    long: LongPolicy,
    odd: Callable[[Clip, str], None] | None = None,
) -> Cut[Clip]:
    """Clips of a data set, decoded as far as the model looks; whether a file is whole its container
    says. `odd` is told of clips that can hardly be heard."""

    def cut(clip: Clip) -> Windows | Iterator[Samples]:
        if long == "tile" and clip.span is None and (place := dataset.sound(clip)) is not None:
            return _tiles(model, place, lambda why: odd and odd(clip, why))
        wave = dataset.read(clip, model.sample_rate_hz, model.reads_s(long), long == "center")
        if odd is not None and (why := oddity(wave, model.sample_rate_hz)):
            odd(clip, why)
        return model.windows(wave, long)

    return cut


def cut_inputs(
    model: Hearer,
    long: LongPolicy,
    sample_rate_hz: int | None = None,
    odd: Callable[[AudioInput, str], None] | None = None,
) -> Cut[AudioInput]:
    """Files, decoded as far as the model looks, and waveforms of this sample rate."""

    def cut(item: AudioInput) -> Windows | Iterator[Samples]:
        if long == "tile" and isinstance(item, str | Path):
            return _tiles(model, Path(item), lambda why: odd and odd(item, why))
        wave = read(item)
        if odd is not None and (why := oddity(wave, model.sample_rate_hz)):
            odd(item, why)
        return model.windows(wave, long)

    def read(item: AudioInput) -> Windows:
        if isinstance(item, str | Path):
            if long == "center":
                n_samples = round(model.window_s * model.sample_rate_hz)
                return load_span(Path(item), model.sample_rate_hz, n_samples)
            return load_audio(Path(item), model.sample_rate_hz, model.reads_s(long))
        if sample_rate_hz is None:
            raise InputError(
                "a waveform does not say how fast it was sampled: give sample_rate= in Hz "
                f"(this model hears {model.sample_rate_hz} Hz, what differs is resampled)"
            )
        return resample(_checked(np.asarray(item)), sample_rate_hz, model.sample_rate_hz)

    return cut


def _tiles(
    model: Hearer, place: Path | SoundBytes, odd: Callable[[str], object]
) -> Iterator[Samples]:
    """Windows of a recording of any length, decoded as they are taken; the first at once, so that
    what cannot be opened says so."""
    rate_hz = model.sample_rate_hz
    stream = stream_windows(place, rate_hz, round(model.window_s * rate_hz))
    first = next(stream)

    def windows() -> Iterator[Samples]:
        strange = oddity(first, rate_hz)
        for wave in chain([first], stream):
            if strange is not None and oddity(wave, rate_hz) is None:
                strange = None
            yield from model.windows(wave, "tile")
        if strange is not None:  # all of it
            odd(strange)

    return windows()


def _checked(wave: npt.NDArray[np.floating]) -> Windows:
    """A waveform as float32; whole numbers of so many bits become ±1, as in a file."""
    if wave.ndim != 1 or not len(wave):
        raise InputError(
            f"a waveform is mono and has samples, got an array of shape {wave.shape}: take the "
            "mean of the channels first"
        )
    if wave.dtype.kind == "i":
        wave = wave / np.float32(2.0 ** (8 * wave.dtype.itemsize - 1))
    elif wave.dtype.kind != "f":
        raise InputError(f"a waveform holds floats or signed integers, not {wave.dtype}")
    if not np.isfinite(wave).all():
        raise AudioError("a waveform holds NaN or infinite samples")
    return wave.astype(np.float32, copy=False)


def reason(error: Exception, clip: Clip) -> str:
    """Why a clip was skipped, without its name, so that like reasons can be counted together."""
    text = str(error)
    names = [clip.id] if clip.path is None else [str(clip.path), clip.path.name, clip.id]
    for name in names:
        text = text.replace(f"'{name}'", "the clip")
    return without_machine_paths(text)
