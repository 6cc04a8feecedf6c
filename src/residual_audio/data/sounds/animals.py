"""Voices of animals."""

from __future__ import annotations

import numpy as np

from residual_audio.data.draws import Array, Draws
from residual_audio.data.sounds.kit import (
    RATE_HZ,
    Sound,
    bandpass,
    beats,
    curve,
    fade,
    glide,
    harmonics,
    place,
    samples,
    wander,
)


def crickets(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    out = np.zeros(n)
    for _ in range(own.count(1, 3)):
        f = 4300.0 * own.ratio(1.2) * pitch
        pulse_s, in_chirp = 0.017 * own.ratio(1.2), own.count(3, 5)
        m = samples(pulse_s)
        pulse = harmonics(glide(f, m), [1.0, 0.1]) * fade(m, 0.005, 0.006)
        period = own.between(0.25, 0.6) / pace
        starts = beats(take, n / RATE_HZ, period, 0.04)
        level = own.between(0.3, 1.0)
        out += level * place(
            n, [(s + 1.45 * pulse_s * k, pulse) for s in starts for k in range(in_chirp)]
        )
    return out


def birds(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 3100.0 * own.ratio(1.35) * pitch
    shapes = [[base * own.between(0.75, 1.4) for _ in range(own.count(2, 4))] for _ in range(3)]

    def chirp() -> Array:
        m = samples(take.between(0.06, 0.18) / pace**0.5)
        f = curve(take.pick(shapes), m) * take.ratio(1.04)
        return harmonics(glide(f, m), [1.0, 0.12]) * fade(m, 0.012, 0.03) * take.between(0.4, 1.0)

    events = []
    for start in beats(take, n / RATE_HZ, own.between(0.6, 1.2) / pace, 0.35):
        spacing = take.between(0.12, 0.2) / pace
        events += [(start + spacing * k, chirp()) for k in range(take.count(1, 5))]
    return place(n, events)


def dog(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    voice = 340.0 * own.ratio(1.6) * pitch
    formants = [own.between(550.0, 850.0), own.between(1200.0, 1800.0)]

    def bark() -> Array:
        m = samples(take.between(0.16, 0.28))
        f = voice * take.ratio(1.08) * curve([0.75, 1.25, 1.0, 0.7], m)
        raw = harmonics(glide(f, m), [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2])
        raw += 0.8 * take.noise(m)
        wave = bandpass(raw, formants[0], 1.6) + 0.7 * bandpass(raw, formants[1], 2.0)
        return wave * fade(m, 0.012, 0.1) * take.between(0.7, 1.0)

    events = []
    for start in beats(take, n / RATE_HZ, own.between(0.9, 1.7) / pace, 0.3):
        events += [(start + 0.36 * k / pace, bark()) for k in range(take.count(1, 3))]
    return place(n, events)


def frog(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    pulses = own.between(28.0, 50.0) * pace**0.3
    throat = [own.between(380.0, 700.0) * pitch, own.between(1400.0, 2100.0) * pitch]

    def croak() -> Array:
        m = samples(take.between(0.25, 0.5))
        phase = glide(pulses * curve([0.85, 1.0, 1.1], m), m)
        train = np.exp(12.0 * (np.cos(phase) - 1.0)) * (0.8 + 0.4 * take.noise(m))
        wave = bandpass(train, throat[0], 5.0) + 0.6 * bandpass(train, throat[1], 6.0)
        return wave * fade(m, 0.06, 0.08)

    starts = beats(take, n / RATE_HZ, own.between(0.6, 1.2) / pace, 0.25)
    return place(n, [(s, take.between(0.5, 1.0) * croak()) for s in starts])


def bee(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    wings = own.between(170.0, 260.0) * pitch
    f = wings * wander(take, n, 0.25, 0.9, 1.12)
    saw = (np.cumsum(f) / RATE_HZ) % 1.0 - 0.5
    buzz = bandpass(saw, 2.2 * wings, 0.6) + 0.3 * bandpass(saw, 2600.0, 1.0)
    near = wander(take, n, 0.7, 0.15, 1.0)
    return buzz * near * (0.9 + 0.1 * take.noise(n))


SOUNDS = (
    Sound(
        "crickets",
        "chirping crickets",
        crickets,
        (
            "Crickets chirp",
            "Crickets are chirping on a summer night",
            "Insects sing in the grass",
            "A cricket trills over and over",
            "Night insects make a rhythmic chirp",
            "Crickets in a meadow at dusk",
        ),
        paced=True,
    ),
    Sound(
        "chirping birds",
        "chirping birds",
        birds,
        (
            "Birds are chirping",
            "A songbird sings in a tree",
            "Birdsong in the morning",
            "Small birds tweet",
            "A bird whistles short phrases",
            "Birds sing in the forest",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "dog barking",
        "a barking dog",
        dog,
        (
            "A dog barks",
            "A dog is barking repeatedly",
            "A dog barks at a stranger",
            "Barking of a dog in the yard",
            "A dog gives a few sharp barks",
            "The neighbour's dog barks again and again",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "frog croaking",
        "a croaking frog",
        frog,
        (
            "A frog croaks",
            "Frogs croak in a pond",
            "The croaking of a frog at night",
            "A toad is calling",
            "A frog calls again and again",
            "Ribbiting frogs by the water",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "buzzing bee",
        "a buzzing bee",
        bee,
        (
            "A bee buzzes",
            "A bee flies around",
            "An insect buzzes close by",
            "A fly is buzzing about the room",
            "The buzz of a bumblebee on a flower",
            "An insect comes near, buzzing, and goes away",
        ),
        pitched=True,
    ),
)
