"""A part of a recording is that part, whatever the format and however it is reached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from residual_audio.audio.decode import SoundBytes, load_audio
from residual_audio.audio.spans import load_span, sound_length, stream_windows
from residual_audio.audio.windows import fit_windows, window_starts
from residual_audio.errors import AudioError

RATE, TO, WINDOW = 22_050, 16_000, 16_000


@pytest.fixture(params=["WAV", "FLAC", "OGG", "MP3", "AIFF"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    # loud passages between silences: frames of MP3 lean far on those before them
    wave = (
        rng.normal(0, 0.2, (7 * RATE + 31, 2)) * (np.arange(7 * RATE + 31) % 9000 < 3000)[:, None]
    )
    path = tmp_path / f"sound.{request.param.lower()}"
    soundfile.write(path, np.clip(wave, -1, 1), RATE, format=request.param)
    return path


def test_spans_are_parts_of_the_whole(path: Path) -> None:
    whole = load_audio(path, TO)
    assert sound_length(path, TO) == len(whole)
    inside = SoundBytes("inside", path.read_bytes())
    for start in (len(whole) - WINDOW, 0, 3 * TO + 7, TO // 3):  # also backwards
        expected = whole[start : start + WINDOW]
        for place in (path, inside):
            np.testing.assert_allclose(load_span(place, TO, WINDOW, start), expected, atol=3e-6)
    middle = whole[(len(whole) - WINDOW) // 2 :][:WINDOW]
    np.testing.assert_allclose(load_span(path, TO, WINDOW), middle, atol=3e-6)
    with pytest.raises(AudioError, match="ends before"):
        load_span(path, TO, WINDOW, len(whole) + TO)


def test_windows_in_a_stream_are_those_of_the_whole(path: Path) -> None:
    whole = load_audio(path, TO)
    expected = fit_windows(whole, WINDOW, "keep", "tile")
    np.testing.assert_array_equal(np.stack(list(stream_windows(path, TO, WINDOW))), expected)
    longer = len(whole) + 5
    np.testing.assert_array_equal(next(stream_windows(path, TO, longer)), whole)


def test_a_hop_makes_windows_overlap() -> None:
    assert window_starts(10, 4, "tile", hop=2) == (0, 2, 4, 6)
    assert window_starts(11, 4, "tile", hop=3) == (0, 3, 6, 7)
    assert window_starts(4, 4, "tile", hop=1) == (0,)
