"""Recordings that are only read from their beginning: spans of one come in order, so the place that
was reached is kept open for the next."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from residual_audio.audio.decode import Samples, SoundBytes, open_sound, resampled, state_of

_OPEN_MAX = 4
_KEPT = 8
"""Spans that stay in memory: threads that read ahead overtake each other by a few."""

Key = tuple[tuple[str, int, int, int], int]


class Forward:
    """One recording, decoded as far as anybody asked."""

    def __init__(self, place: Path | SoundBytes, sample_rate_hz: int) -> None:
        self._place, self._rate_hz = place, sample_rate_hz
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._held: Samples = np.zeros(0, np.float32)
        self._first = 0
        self._begin()

    def span(self, start: int, n_samples: int) -> Samples:
        """Samples from `start` on; fewer where the recording ends."""
        with self._lock:
            if start < self._first:
                self._begin()
            while self._first + len(self._held) < start + n_samples:
                block = next(self._blocks, None)
                if block is None:
                    self._stack.close()
                    break
                self._held = np.concatenate([self._held, block])
                past = start - self._first - _KEPT * n_samples
                if past > 0:
                    self._held, self._first = self._held[past:], self._first + past
            at = start - self._first
            return self._held[at : at + n_samples].copy()

    def _begin(self) -> None:
        self._stack.close()
        source = open_sound(self._place, self._stack, again=True)
        self._blocks = resampled(source.blocks, source.rate_hz, self._rate_hz)
        self._held, self._first = np.zeros(0, np.float32), 0


_open: OrderedDict[Key, Forward] = OrderedDict()
_lock = threading.Lock()


def forward(place: str | os.PathLike[str] | SoundBytes, sample_rate_hz: int) -> Forward:
    """The recording, where it was left."""
    at = place if isinstance(place, SoundBytes) else Path(place)
    key = (state_of(at), sample_rate_hz)
    with _lock:
        if key not in _open:
            _open[key] = Forward(at, sample_rate_hz)
        _open.move_to_end(key)
        while len(_open) > _OPEN_MAX:
            _open.popitem(last=False)  # its file is closed when nobody reads it any more
        return _open[key]
