"""Windows: laws that hold for any clip, and the rule of each family."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from residual_audio.audio.windows import fit_windows, window_starts
from residual_audio.errors import AudioError, InputError

RULES = ("repeat-pad", "repeat-cut", "zero-pad", "keep")
POLICIES = ("first", "center", "tile")


def ramp(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


@given(
    n=st.integers(1, 200),
    window=st.integers(1, 60),
    short=st.sampled_from(RULES),
    long=st.sampled_from(POLICIES),
)
def test_windows_have_the_window_length_and_hold_only_the_clip(n, window, short, long):
    windows = fit_windows(ramp(n), window, short, long)
    width = n if short == "keep" and n < window else window
    assert windows.dtype == np.float32
    assert windows.shape[1] == width
    assert set(np.unique(windows)) <= set(ramp(n)) | {0.0}
    np.testing.assert_array_equal(windows, fit_windows(ramp(n), window, short, long))


@given(n=st.integers(1, 300), window=st.integers(1, 60))
def test_tiles_cover_the_clip_and_the_last_ends_with_it(n, window):
    windows = fit_windows(ramp(n), window, "zero-pad", "tile")
    assert set(ramp(n)) <= set(np.unique(windows))
    assert len(windows) == max(1, -(-n // window))
    if n >= window:
        assert windows[-1, -1] == n
        assert 0.0 not in windows
        starts = window_starts(n, window, "tile")
        assert all(b - a == window for a, b in pairwise(starts[:-1]))


@given(n=st.integers(1, 100), extra=st.integers(1, 100))
def test_short_rules_as_the_families_define_them(n, extra):
    window, wave = n + extra, ramp(n)
    times = window // n
    padded = np.concatenate([np.tile(wave, times), np.zeros(window - times * n)])
    np.testing.assert_array_equal(fit_windows(wave, window, "repeat-pad")[0], padded)
    cut = np.tile(wave, -(-window // n))[:window]
    np.testing.assert_array_equal(fit_windows(wave, window, "repeat-cut")[0], cut)
    zeros = np.concatenate([wave, np.zeros(extra)])
    np.testing.assert_array_equal(fit_windows(wave, window, "zero-pad")[0], zeros)
    np.testing.assert_array_equal(fit_windows(wave, window, "keep")[0], wave)


@given(n=st.integers(1, 100), extra=st.integers(0, 100))
def test_first_and_center(n, extra):
    wave = ramp(n + extra)
    np.testing.assert_array_equal(fit_windows(wave, n, long="first"), wave[None, :n])
    start = extra // 2
    np.testing.assert_array_equal(
        fit_windows(wave, n, long="center"), wave[None, start : start + n]
    )


def test_a_window_does_not_share_memory_with_the_clip():
    wave = ramp(10)
    fit_windows(wave, 5)[0, 0] = 99.0
    assert wave[0] == 1.0


@pytest.mark.parametrize(
    ("samples", "n", "short", "long"),
    [
        (np.zeros((2, 5)), 5, "keep", "first"),
        (np.zeros(5), 0, "keep", "first"),
        (np.zeros(5), 5, "random", "first"),
        (np.zeros(5), 5, "keep", "random"),
    ],
)
def test_nonsense_is_refused(samples, n, short, long):
    with pytest.raises(InputError):
        fit_windows(samples, n, short, long)


def test_a_clip_without_samples_is_refused():
    with pytest.raises(AudioError, match="no samples"):
        fit_windows(np.zeros(0), 10)
