"""Formats libsndfile does not read (m4a, aac, wma, webm, …), through the extra `codecs` (PyAV)."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from residual_audio.errors import AudioError, MissingExtraError

# Containers round their durations, and encoders trim their delay, by up to a few frames.
_TOLERATED_LOSS_S = 0.2


def available() -> bool:
    return importlib.util.find_spec("av") is not None


_NOTHING_ELSE = {"protocol_whitelist": "none"}
"""A playlist is no sound: whatever a file names, no other is opened and no machine is asked."""


def open_blocks(
    source: BinaryIO, path: str, stack: ExitStack
) -> tuple[int, Iterator[npt.NDArray[np.float32]]]:
    """Sample rate and blocks of mono samples of the first audio stream; `path` is how errors call
    the file."""
    if not available():
        raise MissingExtraError("av", "codecs", f"Decoding '{path}'")
    import av

    try:
        # tags in an old encoding say nothing about the sound
        container = stack.enter_context(
            av.open(source, metadata_errors="replace", options=_NOTHING_ELSE)
        )
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise AudioError(f"'{path}' cannot be decoded: {_reason(error)}") from error
    if not container.streams.audio:
        raise AudioError(f"'{path}' holds no sound")
    stream = container.streams.audio[0]
    rate_hz = int(getattr(stream, "rate", 0) or 0)  # a stream without a decoder has none
    if rate_hz < 1:
        raise AudioError(f"'{path}' says its sample rate is 0 Hz; its header is damaged")
    return rate_hz, _blocks(path, container, stream, rate_hz)


def _blocks(
    path: str, container: Any, stream: Any, rate_hz: int
) -> Iterator[npt.NDArray[np.float32]]:
    import av

    promised_s = (container.duration or 0) / av.time_base
    if stream.duration and stream.time_base:
        promised_s = float(stream.duration * stream.time_base)
    # Same rate and layout, float64: one format to average, whatever the codec gives. Interleaved:
    # of more than eight planes the library reads on behind the last, until the process ends.
    to_float = av.AudioResampler(format="dbl")
    n_read = 0
    try:
        for frame in container.decode(stream):
            for part in to_float.resample(frame):
                mono = _mean(np.asarray(part.to_ndarray(), np.float64), part.layout.nb_channels)
                if not np.isfinite(mono).all():
                    raise AudioError(f"'{path}' holds NaN or infinite samples")
                n_read += len(mono)
                yield mono
    except (av.error.FFmpegError, AttributeError, ValueError, OverflowError) as error:
        raise AudioError(
            f"'{path}' is cut short: decoding fails after {n_read / rate_hz:.2f} s "
            f"({_reason(error)}). Copy or download it again."
        ) from error
    if n_read == 0:
        raise AudioError(f"'{path}' has no samples")
    if n_read / rate_hz + _TOLERATED_LOSS_S < promised_s:
        raise AudioError(
            f"'{path}' is cut short: its header promises {promised_s:.2f} s, "
            f"{n_read / rate_hz:.2f} s are there. Copy or download it again."
        )


def _mean(interleaved: npt.NDArray[np.float64], n_channels: int) -> npt.NDArray[np.float32]:
    channels = interleaved.reshape(-1, n_channels).T  # channel sample
    total = channels[0].copy()
    for channel in channels[1:]:
        total += channel
    return (total / n_channels).astype(np.float32)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
