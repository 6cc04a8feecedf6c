"""What a front-end may ask for: a stranger's config neither fills memory nor is guessed at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from residual_audio.audio.filters import MelScale
from residual_audio.audio.windows import ShortRule
from residual_audio.errors import InputError

SIZES = {
    "sample_rate_hz": 1_000_000,
    "n_samples": 2**26,
    "n_fft": 2**17,
    "hop_length": 2**26,
    "n_mels": 4096,
    "win_length": 2**17,
    "filter_rate_hz": 1_000_000,
    "n_frames": 2**20,
}
"""Whole numbers from 1 to sizes that no front-end has; the last three may be None."""
OPTIONAL = ("win_length", "filter_rate_hz", "n_frames", "mean", "std")
RANGES = {
    "f_min_hz": (0.0, 1e6),
    "f_max_hz": (0.0, 1e6),
    "log_eps": (1e-45, 1.0),
    "preemphasis": (0.0, 1.0),
    "mean": (-1e6, 1e6),
    "std": (1e-12, 1e6),
}
KINDS: dict[str, tuple[object, ...]] = {
    "mel_scale": get_args(MelScale),
    "mel_norm": ("slaney", None),
    "short": get_args(ShortRule),
    "center": (True, False),
    "remove_dc": (True, False),
    "quantise": (True, False),
    "drop_last_frame": (True, False),
    "fusion": (True, False),
}


def check_front_end(given: Mapping[str, Any], kinds: Mapping[str, tuple[object, ...]]) -> None:
    """Every setting, by name; `kinds` are further ones that only some words may stand for."""
    for name, most in SIZES.items():
        value = given[name]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole and 1 <= value <= most) and not (value is None and name in OPTIONAL):
            raise InputError(
                f"front-end: {name} must be a whole number from 1 to {most:,}, got {value!r}"
            )
    for name, (low, high) in RANGES.items():
        value = given[name]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and low <= value <= high) and not (value is None and name in OPTIONAL):
            raise InputError(f"front-end: {name} must be from {low:g} to {high:g}, got {value!r}")
    for name, known in {**KINDS, **kinds}.items():
        value = given[name]
        if not any(value == one and type(value) is type(one) for one in known):
            said = ", ".join(str(one) for one in known)
            raise InputError(f"front-end: {name} is one of {said}, got {value!r}")
    if not given["f_min_hz"] < given["f_max_hz"]:
        raise InputError(
            f"front-end: f_max_hz {given['f_max_hz']} is not above f_min_hz {given['f_min_hz']}"
        )
