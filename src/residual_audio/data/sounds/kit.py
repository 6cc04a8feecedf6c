"""What procedural sounds are built from. Everything is float64 at 32 kHz.

Float64 matters beyond accuracy: the last bits of libm, FFT and BLAS differ between machines, and
only with some 30 spare bits do those differences vanish when a wave is rounded to 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from residual_audio.data.draws import Array, Draws

RATE_HZ = 32_000

Make = Callable[[Draws, Draws, int, float, float], Array]
"""(own, take, n samples, pitch, pace) → wave. `own` holds the numbers of one source (this bell,
this dog), the same in all its clips; `take` those of one clip. `pitch` and `pace` are factors."""


@dataclass(frozen=True)
class Sound:
    """One class of procedural sound and the words for it."""

    label: str
    """Class name as it stands in a prompt."""
    noun: str
    """With its article, for compositions: "a church bell"."""
    make: Make
    captions: tuple[str, ...]
    pitched: bool = False
    """Whether "high-pitched" and "low-pitched" make sense."""
    paced: bool = False
    """Whether "fast" and "slow" make sense."""


def samples(duration_s: float) -> int:
    return round(duration_s * RATE_HZ)


def partials(
    frequency_hz: Sequence[float] | Array,
    decay_s: Sequence[float] | Array,
    amplitude: Sequence[float] | Array,
    n: int,
    phase: Sequence[float] | Array | None = None,
) -> Array:
    """Sum of decaying sines: with z^(aB+b) = (z^B)^a z^b it is one small matrix product."""
    block = 512
    z = (-1.0 / np.asarray(decay_s, float) + 2j * np.pi * np.asarray(frequency_hz, float)) / RATE_HZ
    start = 0.0 if phase is None else 1j * np.asarray(phase, float)
    coarse = np.exp(start + z * (block * np.arange(-(-n // block)))[:, None])  # block partial
    coarse *= np.asarray(amplitude, float)
    fine = np.exp(z * np.arange(block)[:, None])  # sample partial
    left = np.hstack([coarse.imag, coarse.real])
    right = np.hstack([fine.real, fine.imag])
    return np.asarray((left @ right.T).ravel()[:n])


def harmonics(phase: Array, weights: Sequence[float]) -> Array:
    """Σ w_k sin(kφ) for a gliding phase, by sin kφ = 2 cos φ sin (k−1)φ − sin (k−2)φ."""
    now, before = np.sin(phase), np.zeros_like(phase)
    out = weights[0] * now
    if len(weights) > 1:
        twice = 2.0 * np.cos(phase)
        for weight in weights[1:]:
            now, before = twice * now - before, now
            if weight:
                out += weight * now
    return out


def glide(frequency_hz: Array | float, n: int) -> Array:
    """Phase of an oscillator that follows a frequency curve."""
    if isinstance(frequency_hz, float | int):
        frequency_hz = np.full(n, float(frequency_hz))
    return np.asarray(np.cumsum(frequency_hz) * (2.0 * math.pi / RATE_HZ), np.float64)


def curve(levels: Sequence[float] | Array, n: int) -> Array:
    """A smooth curve of n samples through equally spaced levels (cosine interpolation)."""
    levels = np.asarray(levels, float)
    if len(levels) == 1:
        return np.full(n, levels[0])
    steps = len(levels) - 1
    length = -(-n // steps)
    ease = 0.5 - 0.5 * np.cos(np.pi * np.arange(length) / length)
    return (levels[:-1, None] + np.diff(levels)[:, None] * ease).ravel()[:n]


def wander(draws: Draws, n: int, every_s: float, low: float, high: float) -> Array:
    """A slow random curve between two levels."""
    points = max(2, math.ceil(n / (every_s * RATE_HZ)) + 1)
    return curve(low + (high - low) * draws.units(points), n)


def _biquad(wave: Array, b: tuple[float, ...], a: tuple[float, ...]) -> Array:
    return np.asarray(lfilter(np.array(b) / a[0], np.array(a) / a[0], wave))


def _angle(frequency_hz: float, q: float) -> tuple[float, float]:
    w = 2.0 * math.pi * min(frequency_hz, 0.49 * RATE_HZ) / RATE_HZ
    return math.cos(w), math.sin(w) / (2.0 * q)


def lowpass(wave: Array, frequency_hz: float, q: float = 0.707) -> Array:
    c, s = _angle(frequency_hz, q)
    return _biquad(wave, ((1 - c) / 2, 1 - c, (1 - c) / 2), (1 + s, -2 * c, 1 - s))


def highpass(wave: Array, frequency_hz: float, q: float = 0.707) -> Array:
    c, s = _angle(frequency_hz, q)
    return _biquad(wave, ((1 + c) / 2, -1 - c, (1 + c) / 2), (1 + s, -2 * c, 1 - s))


def bandpass(wave: Array, frequency_hz: float, q: float) -> Array:
    """Unit gain at the centre."""
    c, s = _angle(frequency_hz, q)
    return _biquad(wave, (s, 0.0, -s), (1 + s, -2 * c, 1 - s))


def fade(n: int, attack_s: float, release_s: float) -> Array:
    """An envelope of n samples that rises and falls along a cosine."""
    out = np.ones(n)
    rise, fall = (max(1, min(n // 2, samples(t))) for t in (attack_s, release_s))
    out[:rise] = 0.5 - 0.5 * np.cos(np.pi * (np.arange(rise) + 0.5) / rise)
    out[n - fall :] *= 0.5 + 0.5 * np.cos(np.pi * (np.arange(fall) + 0.5) / fall)
    return out


def decay(n: int, time_s: float, attack_s: float = 0.001) -> Array:
    """A struck envelope: quick rise, exponential fall."""
    t = np.arange(n) / RATE_HZ
    out = np.exp(-t / time_s)
    rise = max(1, min(n, samples(attack_s)))
    out[:rise] *= np.arange(rise) / rise
    return out


def place(n: int, events: Iterable[tuple[float, Array]]) -> Array:
    """Add each wave at its start time in seconds; what falls outside is cut."""
    out = np.zeros(n)
    for start_s, wave in events:
        at = samples(start_s)
        if at < 0:
            wave, at = wave[-at:], 0
        if at < n:
            out[at : at + len(wave)] += wave[: n - at]
    return out


def beats(draws: Draws, duration_s: float, period_s: float, jitter: float) -> list[float]:
    """Start times of a more or less regular rhythm, from a random point of its cycle."""
    times, now = [], draws.between(0.0, 0.9) * min(period_s, 0.6 * duration_s)
    while now < duration_s - 0.02:
        times.append(now)
        now += period_s * (1.0 + jitter * draws.between(-1.0, 1.0))
    return times


def sprinkle(draws: Draws, n: int, rate_per_s: float, spread: float) -> Array:
    """Single-sample clicks at random times, amplitudes falling like a power law."""
    count = max(1, round(rate_per_s * n / RATE_HZ))
    at = (draws.units(count) * n).astype(np.int64)
    size = (draws.units(count) + 0.02) ** -spread
    sign = np.where(draws.units(count) < 0.5, -1.0, 1.0)
    out = np.zeros(n)
    np.add.at(out, at, sign * size)
    return out
