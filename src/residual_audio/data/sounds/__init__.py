"""Procedural sounds: one function a class, the words for it beside it.

`ALL` is in the order in which clips go round the classes; adding a sound is adding one `Sound` to
the `SOUNDS` of its file, which changes every synthetic data set, so raise `VERSION` with it.
"""

from __future__ import annotations

from residual_audio.data.sounds import animals, machines, noises, struck, tones
from residual_audio.data.sounds.kit import RATE_HZ, Sound

VERSION = 1

ALL: tuple[Sound, ...] = (
    *tones.SOUNDS,
    *struck.SOUNDS,
    *noises.SOUNDS,
    *machines.SOUNDS,
    *animals.SOUNDS,
)

__all__ = ["ALL", "RATE_HZ", "VERSION", "Sound"]
