"""Mel filter banks: triangles on the slaney, htk or kaldi scale, in float64 numpy."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError

MelScale = Literal["slaney", "htk", "kaldi"]

Array = npt.NDArray[np.float64]

# Slaney: linear up to 1 kHz (200/3 Hz a mel), then logarithmic, 27 mels for a factor of 6.4.
_SLANEY_HZ_PER_MEL = 200.0 / 3.0
_SLANEY_KNEE_HZ = 1000.0
_SLANEY_KNEE_MEL = _SLANEY_KNEE_HZ / _SLANEY_HZ_PER_MEL
_SLANEY_LOG_STEP = np.log(6.4) / 27.0


def hz_to_mel(frequency_hz: npt.ArrayLike, scale: MelScale) -> Array:
    f = np.asarray(frequency_hz, dtype=np.float64)
    if scale == "htk":
        return 2595.0 * np.log10(1.0 + f / 700.0)
    if scale == "kaldi":
        return 1127.0 * np.log1p(f / 700.0)
    above = _SLANEY_KNEE_MEL + np.log(np.maximum(f, 1e-9) / _SLANEY_KNEE_HZ) / _SLANEY_LOG_STEP
    return np.where(f >= _SLANEY_KNEE_HZ, above, f / _SLANEY_HZ_PER_MEL)


def mel_to_hz(mel: npt.ArrayLike, scale: MelScale) -> Array:
    m = np.asarray(mel, dtype=np.float64)
    if scale == "htk":
        return 700.0 * (10.0 ** (m / 2595.0) - 1.0)
    if scale == "kaldi":
        return 700.0 * np.expm1(m / 1127.0)
    above = _SLANEY_KNEE_HZ * np.exp(_SLANEY_LOG_STEP * (m - _SLANEY_KNEE_MEL))
    return np.where(m >= _SLANEY_KNEE_MEL, above, m * _SLANEY_HZ_PER_MEL)


def mel_filters(
    n_fft: int,
    n_mels: int,
    f_min_hz: float,
    f_max_hz: float,
    sample_rate_hz: float,
    scale: MelScale = "slaney",
    norm: Literal["slaney"] | None = "slaney",
) -> npt.NDArray[Any]:
    """Triangular filters [n_fft // 2 + 1, n_mels], to multiply a power spectrum from the right.

    `norm="slaney"` divides each triangle by half its width in Hz (equal energy a channel).
    The kaldi scale draws its triangles straight in mel, the other two in Hz.
    """
    if not 0 <= f_min_hz < f_max_hz <= sample_rate_hz / 2:
        raise InputError(
            f"mel filters need 0 <= f_min < f_max <= half the sample rate; "
            f"got f_min {f_min_hz}, f_max {f_max_hz}, sample rate {sample_rate_hz}"
        )
    bins_hz = np.linspace(0.0, sample_rate_hz / 2, n_fft // 2 + 1)
    corners_mel = np.linspace(hz_to_mel(f_min_hz, scale), hz_to_mel(f_max_hz, scale), n_mels + 2)
    corners_hz = mel_to_hz(corners_mel, scale)
    if scale == "kaldi":
        points, corners = hz_to_mel(bins_hz, scale), corners_mel
    else:
        points, corners = bins_hz, corners_hz

    widths = np.diff(corners)
    rise = (points[:, None] - corners[None, :-2]) / widths[:-1]  # bin mel
    fall = (corners[None, 2:] - points[:, None]) / widths[1:]
    bank = np.maximum(0.0, np.minimum(rise, fall))
    if norm == "slaney":
        bank *= 2.0 / (corners_hz[2:] - corners_hz[:-2])
    return bank
