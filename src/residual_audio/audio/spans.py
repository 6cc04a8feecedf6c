"""Parts of long recordings: only what a window needs is decoded, whatever the length of the file.

A span is defined by itself: it starts at a whole period of the two sample rates a moment before the
window, so that it is the same whoever reads it and in whatever order, and equal to that part of the
whole file to the last rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from math import gcd

import numpy as np

from residual_audio.audio.decode import Samples, SoundBytes, open_sound, resampled
from residual_audio.audio.forward import forward
from residual_audio.errors import AudioError

Place = str | os.PathLike[str] | SoundBytes
_BEFORE_S = 1.0
"""Decoded before a span and thrown away: lossy frames lean on earlier ones, filters ring."""
_AFTER_S = 0.1


def sound_length(place: Place, sample_rate_hz: int) -> int:
    """Samples of a file at this rate, by its header where it has one."""
    with ExitStack() as stack:
        source = open_sound(place, stack, again=True)
        n = sum(map(len, source.blocks)) if source.n_frames is None else source.n_frames
        return max(1, _scaled(n, source.rate_hz, sample_rate_hz))


def load_span(
    place: Place, sample_rate_hz: int, n_samples: int, start: int | None = None
) -> Samples:
    """`n_samples` from sample `start` at this rate, or those in the middle; fewer where the file
    ends before."""
    if start is None:
        start = max(0, (sound_length(place, sample_rate_hz) - n_samples) // 2)
    with ExitStack() as stack:
        source = open_sound(place, stack, again=True)
        rate = source.rate_hz
        if source.seek is None:
            return _whole(forward(place, sample_rate_hz).span(start, n_samples), place)
        step = gcd(rate, sample_rate_hz)
        periods = max(0, int((start / sample_rate_hz - _BEFORE_S) * step))
        first = periods * (rate // step)
        source.seek(first)
        last = _scaled(start + n_samples, sample_rate_hz, rate) + round(_AFTER_S * rate)
        blocks = resampled(_until(source.blocks, last - first), rate, sample_rate_hz)
        skip = start - periods * (sample_rate_hz // step)
        return _whole(np.concatenate(list(blocks))[skip : skip + n_samples], place)


def stream_windows(place: Place, sample_rate_hz: int, n_samples: int) -> Iterator[Samples]:
    """Windows end to end, one in memory at a time; the last is moved back to end with the clip.

    A clip shorter than a window comes as it is.
    """
    with ExitStack() as stack:
        source = open_sound(place, stack)
        waiting = before = np.zeros(0, np.float32)
        for block in resampled(source.blocks, source.rate_hz, sample_rate_hz):
            waiting = np.concatenate([waiting, block]) if len(waiting) else block
            while len(waiting) >= n_samples:
                before, waiting = waiting[:n_samples], waiting[n_samples:]
                yield before
        if len(waiting):
            yield np.concatenate([before, waiting])[-n_samples:]


def _scaled(n: int, from_hz: int, to_hz: int) -> int:
    """Samples at another rate, rounded as the resampler does."""
    return (2 * n * to_hz + from_hz) // (2 * from_hz)


def _until(blocks: Iterator[Samples], n: int) -> Iterator[Samples]:
    for block in blocks:
        yield block[:n]
        n -= len(block)
        if n <= 0:
            return


def _whole(found: Samples, place: Place) -> Samples:
    if not len(found):
        raise AudioError(f"'{place}' ends before the part that was asked for")
    return found
