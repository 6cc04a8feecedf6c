"""Deterministic windows: what a model sees of a clip that is shorter or longer than its window."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from residual_audio.errors import AudioError, InputError

ShortRule = Literal["repeat-pad", "repeat-cut", "zero-pad", "keep"]
"""`repeat-pad`: repeat whole times as often as it fits, then silence (LAION, transformers).
`repeat-cut`: repeat and cut (Microsoft). `zero-pad`: silence at the end (MGA, Whisper).
`keep`: leave it short, for encoders that take any length (M2D, AST)."""

LongPolicy = Literal["first", "center", "tile"]
"""`first`: the first window. `center`: the middle one. `tile`: windows that cover the whole clip:
a vector of it is the mean of theirs, and a store has a row for each."""

Samples = npt.NDArray[np.float32]


def fit_windows(
    samples: npt.ArrayLike,
    n_samples: int,
    short: ShortRule = "repeat-pad",
    long: LongPolicy = "first",
) -> Samples:
    """Cut or fill a mono clip to windows [window, n_samples], always in the same way.

    `tile` puts windows end to end (hop = window). The last one is moved back to end with the clip,
    so it is full of sound and overlaps its neighbour instead of being padded.
    """
    wave = np.ascontiguousarray(samples, dtype=np.float32)
    if wave.ndim != 1 or n_samples < 1:
        raise InputError(
            f"expected a mono clip [sample] and a positive window, "
            f"got shape {wave.shape} and {n_samples} samples"
        )
    if short not in get_args(ShortRule) or long not in get_args(LongPolicy):
        raise InputError(
            f"unknown rule '{short}' or policy '{long}'; "
            f"short: {', '.join(get_args(ShortRule))}; long: {', '.join(get_args(LongPolicy))}"
        )
    if len(wave) == 0:
        raise AudioError("the clip has no samples, so there is no window to cut")
    if len(wave) < n_samples:
        return _fill(wave, n_samples, short)[None]
    return np.stack([wave[s : s + n_samples] for s in window_starts(len(wave), n_samples, long)])


def window_starts(
    n: int, n_samples: int, long: LongPolicy = "first", hop: int | None = None
) -> tuple[int, ...]:
    """First sample of each window of a clip of `n` samples; `tile` begins one every `hop`."""
    if n <= n_samples or long == "first":
        return (0,)
    if long == "center":
        return ((n - n_samples) // 2,)
    hop = hop or n_samples
    return tuple(tile_start(n, n_samples, hop, k) for k in range(n_tiles(n, n_samples, hop)))


def n_tiles(n: int, n_samples: int, hop: int) -> int:
    """Windows that cover `n` samples, one every `hop`."""
    return 1 if n <= n_samples else 1 + -(-(n - n_samples) // hop)


def tile_start(n: int, n_samples: int, hop: int, k: int) -> int:
    """First sample of window k; the last is moved back to end with the clip."""
    return max(0, min(k * hop, n - n_samples))


def _fill(wave: Samples, n_samples: int, short: ShortRule) -> Samples:
    if short == "keep":
        return wave
    if short == "repeat-cut":
        return np.resize(wave, n_samples)
    times = n_samples // len(wave) if short == "repeat-pad" else 1
    filled = np.zeros(n_samples, dtype=np.float32)
    filled[: times * len(wave)] = np.tile(wave, times)
    return filled
