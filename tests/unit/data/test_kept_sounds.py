"""A made sound is made once, as long as there is room."""

from __future__ import annotations

import numpy as np

from residual_audio.data.kept_sounds import KeptSounds
from residual_audio.types import Clip


def test_a_sound_is_made_once_for_a_rate_and_again_without_room() -> None:
    made: list[tuple[str, int]] = []

    def make(clip: Clip, rate_hz: int) -> np.ndarray:
        made.append((clip.id, rate_hz))
        return np.full(10, len(made), np.float32)

    kept = KeptSounds(make, most_bytes=100)
    a, b, c = Clip("a"), Clip("b"), Clip("c")
    for clip, rate_hz in ((a, 1), (a, 1), (b, 1), (b, 1), (a, 1)):
        assert np.array_equal(kept(clip, rate_hz), make_again(clip))
    assert made == [("a", 1), ("b", 1)]
    for _ in range(2):  # 80 of 100 bytes are taken
        kept(c, 1)
    assert made[2:] == [("c", 1), ("c", 1)]
    kept(a, 2)
    assert made[-1] == ("a", 2)
    assert not kept(a, 1).flags.writeable


def make_again(clip: Clip) -> np.ndarray:
    return np.full(10, {"a": 1, "b": 2}[clip.id], np.float32)
