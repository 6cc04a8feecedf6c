"""Sounds that are made on demand, kept for the steps of a run that hear them again."""

from __future__ import annotations

import threading
from collections.abc import Callable

from residual_audio.data.base import Wave
from residual_audio.types import Clip

MOST_BYTES = 150_000_000
"""Two hundred clips of 5 s; of a larger set the first stay, and the others are made again."""


class KeptSounds:
    """Makes a sound once, as long as there is room for it."""

    def __init__(self, make: Callable[[Clip, int], Wave], most_bytes: int = MOST_BYTES) -> None:
        self._make = make
        self._left = most_bytes
        self._kept: dict[tuple[str, int], Wave] = {}
        self._lock = threading.Lock()

    def __call__(self, clip: Clip, sample_rate_hz: int) -> Wave:
        key = clip.id, sample_rate_hz
        found = self._kept.get(key)
        if found is None:
            found = self._make(clip, sample_rate_hz)
            with self._lock:  # clips are read in several threads
                if found.nbytes <= self._left and key not in self._kept:
                    found.flags.writeable = False  # whoever hears it next must find it as it was
                    self._kept[key] = found
                    self._left -= found.nbytes
        return found
