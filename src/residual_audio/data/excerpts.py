"""Two recordings put into one clip: one after the other with a cross-fade, or over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from residual_audio.data.base import Wave
from residual_audio.data.draws import Draws

Samples = npt.NDArray[np.float64]
STEP_S = 0.05
"""Resolution at which levels are looked at."""
ATTRIBUTES = ("loudness", "pitch", "distance")
"""What can be changed in a recording; pace cannot, without making it."""
LOUDER_DB, FARTHER_DB, PITCH = 14.0, 10.0, 1.5
"""How far apart the two ends of an attribute are: decibels, and a factor up and down."""
FAR_HZ, FAR_ECHO_S = 1800.0, 0.5
"""What distance takes away, and what it adds."""


@dataclass(frozen=True)
class Seam:
    """Everything about a clip that is not in the two recordings: the same in both of an item."""

    share: float
    """Of the clip's length, what the first recording fills."""
    fade_s: float
    places: tuple[float, float]
    """Which of the passages that are nearly as loud as the loudest, 0 to 1."""
    balance_db: float
    """Level of the first recording over that of the second, where level is not what is asked."""
    level_db: float
    early: int

    @classmethod
    def draw(cls, draws: Draws) -> Seam:
        return cls(
            share=draws.between(0.42, 0.58),
            fade_s=draws.between(0.05, 0.3),
            places=(draws.unit(), draws.unit()),
            balance_db=draws.between(-3.0, 3.0),
            level_db=draws.between(-30.0, -14.0),
            early=draws.count(0, 1),
        )


def follow(waves: Sequence[Wave], rate_hz: int, n: int, joint: Seam, exchanged: bool) -> Wave:
    """One recording, then the other, of `n` samples in all; exchanged: the other one first.

    Each keeps its length and its passage, so the two clips of an item hold the same sounds.
    """
    fade = round(joint.fade_s * rate_hz)
    first = round(joint.share * n)
    lengths = (first + fade // 2, n - first + fade - fade // 2)
    parts = [
        levelled(excerpt(wave, rate_hz, m, place), rate_hz)
        for wave, m, place in zip(waves, lengths, joint.places, strict=True)
    ]
    parts[0] = parts[0] * _factor(joint.balance_db)
    before, after = reversed(parts) if exchanged else parts
    # equal power: the two are unrelated, so their powers add
    ramp = np.sin(np.linspace(0, np.pi / 2, fade))
    before[len(before) - fade :] *= ramp[::-1]
    after[:fade] *= ramp
    out = np.zeros(n)
    out[: len(before)] += before
    out[n - len(after) :] += after
    return placed(out, rate_hz, joint.level_db)


def lay_over(
    waves: Sequence[Wave], rate_hz: int, n: int, joint: Seam, attribute: str, exchanged: bool
) -> Wave:
    """Both recordings at once, the first louder, higher or nearer; exchanged: the second."""
    m = round((0.6 + 0.4 * (joint.share - 0.42) / 0.16) * n)
    out = np.zeros(n)
    for k, wave in enumerate(waves):
        up = (k == 0) != exchanged
        part = _changed(wave, rate_hz, m, joint.places[k], attribute, up)
        if attribute == "pitch" and k == 0:
            part = part * _factor(joint.balance_db)
        at = 0 if k == joint.early else n - m
        out[at : at + m] += part
    return placed(out, rate_hz, joint.level_db)


def _changed(wave: Wave, rate_hz: int, m: int, place: float, attribute: str, up: bool) -> Samples:
    if attribute == "pitch":
        import soxr

        factor = PITCH if up else 1 / PITCH
        longer = excerpt(wave, rate_hz, round(m * factor) + 2, place)
        part = np.resize(soxr.resample(longer, rate_hz * factor, rate_hz, "HQ"), m)
        return levelled(part * _edges(m, rate_hz), rate_hz)
    part = levelled(excerpt(wave, rate_hz, m, place) * _edges(m, rate_hz), rate_hz)
    if up:
        return part
    if attribute == "loudness":
        return part * _factor(-LOUDER_DB)
    return levelled(_far(part, rate_hz), rate_hz) * _factor(-FARTHER_DB)


def _far(wave: Samples, rate_hz: int) -> Samples:
    """Without its highs, and with the room around it."""
    from scipy.signal import butter, fftconvolve, sosfilt

    dull = sosfilt(butter(2, FAR_HZ, fs=rate_hz, output="sos"), wave)
    m = round(FAR_ECHO_S * rate_hz)
    tail = Draws("echo", rate_hz).noise(m) * np.exp(-6.9 * np.arange(m) / m)
    wet = fftconvolve(dull, tail)[: len(dull)] / np.sqrt(np.sum(tail**2))
    return np.asarray(0.6 * dull + wet)


def excerpt(wave: Wave, rate_hz: int, m: int, place: float) -> Samples:
    """`m` samples of the recording from where it sounds; a shorter one is repeated.

    Recordings hold silence. Of all passages with at least nine tenths of the energy of the most
    energetic one, `place` says which.
    """
    long = np.resize(np.asarray(wave, np.float64), max(m, len(wave)))
    step = max(1, round(STEP_S * rate_hz))
    starts = np.arange(0, len(long) - m + 1, step)
    energy = np.concatenate([[0.0], np.cumsum(long**2)])
    held = energy[starts + m] - energy[starts]
    good = starts[held >= 0.9 * held.max()]
    at = int(good[int(place * len(good))])
    return long[at : at + m].copy()


def levelled(wave: Samples, rate_hz: int) -> Samples:
    """Scaled so that its loudest tenth has an RMS of 1."""
    step = max(1, round(STEP_S * rate_hz))
    whole = len(wave) // step * step
    power = np.sort(np.mean(wave[:whole].reshape(-1, step) ** 2, axis=1))
    loudest = power[-max(1, len(power) // 10) :].mean()
    return wave / np.sqrt(loudest) if loudest > 0 else wave


def placed(wave: Samples, rate_hz: int, level_db: float) -> Wave:
    """At a level, without clipping."""
    wave = levelled(wave, rate_hz) * _factor(level_db)
    peak = float(np.max(np.abs(wave), initial=0.0))
    return (wave * (0.95 / peak) if peak > 0.95 else wave).astype(np.float32)


def _factor(db: float) -> float:
    return float(10.0 ** (db / 20.0))


def _edges(m: int, rate_hz: int) -> Samples:
    """Short fades, so that nothing begins or ends with a click."""
    fade = min(m // 2, round(0.02 * rate_hz))
    out = np.ones(m)
    out[:fade] = np.linspace(0, 1, fade)
    out[m - fade :] = out[:fade][::-1]
    return out
