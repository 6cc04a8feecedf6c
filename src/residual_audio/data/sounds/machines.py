"""Motors and tools."""

from __future__ import annotations

import numpy as np

from residual_audio.data.draws import Array, Draws
from residual_audio.data.sounds.kit import (
    RATE_HZ,
    Sound,
    bandpass,
    curve,
    glide,
    harmonics,
    highpass,
    lowpass,
    wander,
)


def engine(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    idle = own.between(22.0, 45.0) * pitch
    revs = curve([idle * take.between(0.9, 1.8) for _ in range(take.count(2, 5))], n)
    phase = glide(revs, n)
    # one sharp pulse a firing, with every other cylinder a little weaker
    firing = np.exp(4.0 * (np.cos(phase) - 1.0)) * (1.0 + own.between(0.1, 0.4) * np.cos(phase / 2))
    rough = firing * (0.8 + 0.4 * take.noise(n))
    exhaust = bandpass(rough, own.between(80.0, 160.0), 1.0) + 0.8 * bandpass(rough, 700.0, 0.7)
    return exhaust + 0.25 * highpass(rough, 1500.0)


def helicopter(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    blades = own.between(9.0, 15.0) * pace
    phase = glide(blades * take.ratio(1.03), n) + take.between(0.0, 6.28)
    chop = np.exp(5.0 * (np.cos(phase) - 1.0))
    noise = take.noise(n)
    slap = lowpass(noise, 380.0 * pitch * own.ratio(1.2)) * chop
    wash = bandpass(noise, 1200.0, 0.4) * (0.3 + 0.7 * chop)
    turbine = harmonics(glide(own.between(1500.0, 2600.0) * pitch, n), [0.02])
    return (slap + 0.12 * wash + 0.3 * turbine) * curve(
        [take.between(0.4, 1.0) for _ in range(3)], n
    )


def vacuum_cleaner(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    motor = own.between(190.0, 330.0) * pitch
    speed = motor * wander(take, n, 0.6, 0.97, 1.03)
    whine = harmonics(glide(speed, n), [0.25, 0.5, 0.2, 0.35, 0.1, 0.25, 0.08, 0.15])
    air = bandpass(take.noise(n), own.between(900.0, 1700.0), 0.35)
    return 0.5 * whine + 0.9 * air


def sawing(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    strokes = own.between(1.1, 2.0) * pace
    way = (np.arange(n) / RATE_HZ * strokes + take.unit()) % 1.0
    push = np.where(way < 0.45, np.sin(np.pi * way / 0.45), 0.0)
    pull = np.where(way >= 0.52, 0.6 * np.sin(np.pi * (way - 0.52) / 0.48), 0.0)
    teeth = 0.5 + 0.5 * np.sin(glide(own.between(90.0, 150.0) * (0.4 + push + pull), n))
    noise = take.noise(n) * teeth
    f = own.between(1300.0, 2400.0) * pitch
    return bandpass(noise, f, 1.0) * push + bandpass(noise, 1.35 * f, 1.0) * pull


def drill(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = own.between(85.0, 140.0) * pitch
    load = wander(take, n, 0.35, 0.72, 1.0)
    phase = glide(base * load, n)
    saw = (phase / (2 * np.pi)) % 1.0 - 0.5
    gears = harmonics(phase * 11.0, [0.5, 0.3])
    grind = take.noise(n) * (0.5 + 0.5 * np.sin(2.0 * phase))
    tool = bandpass(saw, 700.0, 0.5) + 0.6 * gears + 0.5 * bandpass(grind, 3000.0, 0.7)
    pressed = wander(take, n, 0.9, 0.0, 1.0) > 0.25
    return tool * lowpass(np.where(pressed, 1.0, 0.15), 8.0)


SOUNDS = (
    Sound(
        "engine",
        "an engine",
        engine,
        (
            "An engine is running",
            "A motor idles and revs",
            "The engine of a truck rumbles",
            "A car engine is revved",
            "A diesel engine chugs along",
            "A motorcycle idles at the kerb",
        ),
        pitched=True,
    ),
    Sound(
        "helicopter",
        "a helicopter",
        helicopter,
        (
            "A helicopter flies overhead",
            "The rotor blades of a helicopter chop the air",
            "A helicopter hovers",
            "Rhythmic thumping of helicopter blades",
            "A helicopter is passing by",
            "An aircraft with rotating blades is in the air",
        ),
        paced=True,
    ),
    Sound(
        "vacuum cleaner",
        "a vacuum cleaner",
        vacuum_cleaner,
        (
            "A vacuum cleaner is running",
            "Someone vacuums the carpet",
            "The motor of a vacuum cleaner whines",
            "Vacuuming in a room",
            "A household vacuum sucks air",
            "A hoover is being used",
        ),
        pitched=True,
    ),
    Sound(
        "hand saw",
        "a hand saw",
        sawing,
        (
            "Someone saws wood by hand",
            "A hand saw cuts back and forth",
            "Sawing through a plank",
            "A carpenter is sawing",
            "The strokes of a saw in wood",
            "Wood is cut with a saw",
        ),
        paced=True,
    ),
    Sound(
        "power drill",
        "a power drill",
        drill,
        (
            "A power drill is used",
            "Someone drills a hole in the wall",
            "An electric drill whirs",
            "Drilling with a power tool",
            "An electric screwdriver runs in bursts",
            "A drill grinds into the material",
        ),
        pitched=True,
    ),
)
