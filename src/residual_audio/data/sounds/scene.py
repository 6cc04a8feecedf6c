"""Where a sound is heard: how loud, in which room, over which background, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import fft

from residual_audio.data.draws import Array, Draws
from residual_audio.data.sounds.kit import RATE_HZ, Sound, lowpass, samples, wander

Background = Literal["none", "hiss", "traffic"]
N_ROOMS = 12
LOUD_DB, QUIET_DB = -16.0, -27.0
"""Active level from which a clip is called loud, and below which quiet."""

_BEYOND = {
    "loud": ("loud and close", "very loud", "right next to the microphone"),
    "quiet": ("faint and far away", "quietly in the distance", "barely audible"),
    "hall": ("echoing in a large hall", "with a long echo", "in a church"),
    "room": ("in a room", "indoors", "in a small room"),
    "hiss": ("with hiss in the background", "over background noise", "in a noisy recording"),
    "traffic": (
        "with traffic rumbling in the background",
        "near a road",
        "while cars pass far off",
    ),
    "high": ("at a high pitch", "high-pitched"),
    "low": ("at a low pitch", "low-pitched"),
    "fast": ("at a fast pace", "quickly"),
    "slow": ("at a slow pace", "slowly"),
}


@dataclass(frozen=True)
class Scene:
    """Everything about a clip that is not the sound itself."""

    level_db: float
    """Level of the loudest tenth of the clip."""
    room: int | None
    """Number of the room; the later half are large."""
    background: Background
    snr_db: float

    @classmethod
    def draw(cls, draws: Draws) -> Scene:
        level_db = draws.between(-32.0, -11.0)
        room = draws.count(0, N_ROOMS - 1) if draws.chance(0.4) else None
        backgrounds: tuple[Background, ...] = ("none", "hiss", "traffic")
        return cls(level_db, room, draws.pick(backgrounds), draws.between(10.0, 34.0))

    def words(self) -> list[str]:
        """Names of what can be heard in it."""
        found = []
        if self.level_db > LOUD_DB:
            found.append("loud")
        elif self.level_db < QUIET_DB:
            found.append("quiet")
        if self.room is not None:
            found.append("hall" if self.room >= N_ROOMS // 2 else "room")
        if self.background != "none" and self.snr_db < 20.0:
            found.append(self.background)
        return found

    def place(self, wave: Array, draws: Draws) -> npt.NDArray[np.float32]:
        """Put a dry wave into the scene; the result lies on the 16-bit grid."""
        wave = level(wave)
        if self.room is not None:
            wave = level(_echo(wave, self.room))
        if self.background != "none":
            noise = draws.noise(len(wave))
            if self.background == "traffic":
                noise = lowpass(noise, 220.0) * wander(draws, len(wave), 0.7, 0.5, 1.0)
            else:
                noise = lowpass(noise, 7000.0)
            wave = wave + level(noise) * 10.0 ** (-self.snr_db / 20.0)
        wave = wave * 10.0 ** (self.level_db / 20.0)
        peak = float(np.max(np.abs(wave), initial=0.0))
        return on_grid(wave * (0.95 / peak) if peak > 0.95 else wave)


def on_grid(wave: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Round to 16 bits: differences in the last bits between machines vanish."""
    steps = np.clip(np.rint(wave * 32768.0), -32768, 32767) + 0.0  # + 0.0: there is no -0 here
    return (steps * (1.0 / 32768.0)).astype(np.float32)


def level(wave: Array) -> Array:
    """Scale so that the loudest tenth of the clip (in steps of 50 ms) has an RMS of 1."""
    step = samples(0.05)
    whole = len(wave) // step * step
    power = np.sort(np.mean(wave[:whole].reshape(-1, step) ** 2, axis=1))
    loudest = power[-max(1, len(power) // 10) :].mean()
    return wave / np.sqrt(loudest) if loudest > 0 else wave


def _echo(wave: Array, room: int) -> Array:
    size, spectrum = _room(room, len(wave))
    return np.asarray(fft.irfft(fft.rfft(wave, size) * spectrum, size)[: len(wave)])


@lru_cache(maxsize=2 * N_ROOMS)
def _room(room: int, n: int) -> tuple[int, npt.NDArray[np.complex128]]:
    """Impulse response: direct sound, a few early reflections, a decaying diffuse tail."""
    draws = Draws("room", room)
    large = room >= N_ROOMS // 2
    rt60 = draws.between(1.0, 2.2) if large else draws.between(0.15, 0.5)
    m = min(samples(0.5 * rt60 + 0.05), n)
    t = np.arange(m) / RATE_HZ
    tail = lowpass(draws.noise(m), 5000.0 if large else 7000.0) * np.exp(-6.9 * t / rt60)
    tail[: samples(0.01)] = 0.0
    response = tail * draws.between(0.02, 0.05)
    response[0] = 1.0
    for _ in range(6):
        response[min(m - 1, samples(draws.between(0.003, 0.05 if large else 0.02)))] += (
            draws.between(-0.4, 0.4)
        )
    size = fft.next_fast_len(n + m, real=True)
    return size, np.asarray(fft.rfft(response, size))


def describe(sound: Sound, scene: Scene, manner: list[str], draws: Draws) -> tuple[str, ...]:
    """Several captions of one clip: some bare, some with what else can be heard."""
    extra = [*manner, *scene.words()]
    captions = []
    for sentence in [*draws.some(sound.captions, 4), f"The sound of {sound.noun}"]:
        said = draws.some(extra, draws.count(0, min(2, len(extra)))) if extra else []
        captions.append(", ".join([sentence, *(draws.pick(_BEYOND[word]) for word in said)]))
    return tuple(captions)


def qualified(noun: str, adjective: str) -> str:
    """ "a bell", "loud" → "a loud bell"; "an engine", "slow" → "a slow engine"."""
    first, _, rest = noun.partition(" ")
    return f"a {adjective} {rest}" if first in ("a", "an") else f"{adjective} {noun}"
