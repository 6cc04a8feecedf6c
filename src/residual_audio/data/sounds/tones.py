"""Sounds with a held or gliding pitch."""

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
    lowpass,
    partials,
    place,
    samples,
    wander,
)


def steady_tone(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    frequency = 520.0 * own.ratio(1.7) * pitch * take.ratio(1.02)
    second = own.between(0.0, 0.12)
    return partials([frequency, 2 * frequency], [60.0, 60.0], [1.0, second], n)


def sweep(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    low = 260.0 * own.ratio(1.5) * pitch
    high = low * own.between(5.0, 14.0)
    rising = own.chance(0.5)
    period = own.between(0.8, 2.2) / pace

    def one() -> Array:
        m = samples(period * take.between(0.75, 0.95))
        way = np.linspace(0.0, 1.0, m) if rising else np.linspace(1.0, 0.0, m)
        frequency = low * (high / low) ** way
        return harmonics(glide(frequency, m), [1.0, 0.15]) * fade(m, 0.03, 0.05)

    starts = beats(take, n / RATE_HZ, period * 1.15, 0.03)
    return place(n, [(start, one()) for start in starts[:6]])


def siren(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    low = 620.0 * own.ratio(1.25) * pitch
    high = low * own.between(1.7, 2.4)
    rate = own.between(0.25, 0.7) * pace
    yelp = own.chance(0.4)
    t = np.arange(n) / RATE_HZ + take.between(0.0, 1.0 / rate)
    if yelp:
        way = (4.0 * rate * t) % 1.0
    else:
        way = 0.5 - 0.5 * np.cos(2 * np.pi * rate * t)
    doppler = curve([1.0, 1.0, take.between(0.94, 1.0)], n)
    wave = harmonics(glide((low + (high - low) * way) * doppler, n), [1.0, 0.45, 0.35, 0.12])
    return wave * curve([take.between(0.4, 1.0) for _ in range(3)], n)


def alarm(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    frequency = 2050.0 * own.ratio(1.35) * pitch
    beep_s, in_burst = own.between(0.05, 0.09) / pace, own.count(2, 4)
    period = beep_s * 2.0 * in_burst + own.between(0.25, 0.55) / pace
    m = samples(beep_s)
    beep = harmonics(glide(frequency, m), [1.0, 0.0, 0.4, 0.0, 0.2]) * fade(m, 0.003, 0.004)
    starts = beats(take, n / RATE_HZ, period, 0.0)
    return place(n, [(s + 2 * beep_s * k, beep) for s in starts for k in range(in_burst)])


def telephone(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 440.0 * own.ratio(1.2) * pitch
    trill = own.between(16.0, 24.0)
    on_s, off_s = own.between(0.7, 1.2) / pace, own.between(0.5, 1.1) / pace
    m = samples(on_s)
    # two gongs struck in turn: every partial is gated by the clapper
    gongs = partials(
        [2.0 * base, 4.12 * base, 2.5 * base, 5.3 * base], [9.0] * 4, [1.0, 0.5, 0.9, 0.4], m
    )
    gate = 0.55 + 0.45 * np.sign(np.sin(2 * np.pi * trill * np.arange(m) / RATE_HZ))
    ring = lowpass(gongs * gate, 6000.0) * fade(m, 0.005, 0.12)
    return place(n, [(s, ring) for s in beats(take, n / RATE_HZ, on_s + off_s, 0.0)])


def train_horn(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 277.0 * own.ratio(1.2) * pitch
    chord = own.pick([(1.0, 1.26, 1.5), (1.0, 1.19, 1.5, 1.78), (1.0, 1.33, 1.68)])
    weights = [1.0, 0.8, 0.6, 0.45, 0.3, 0.2, 0.12]

    def blast(length_s: float) -> Array:
        m = samples(length_s)
        bend = curve([0.97, 1.0, 1.0, 1.0, 0.985], m)
        tune = [take.ratio(1.004) for _ in chord]
        parts = [
            harmonics(glide(base * k * d * bend, m), weights)
            for k, d in zip(chord, tune, strict=True)
        ]
        return np.sum(parts, axis=0) * fade(m, 0.06, 0.15)

    total = n / RATE_HZ
    first = take.between(0.25, 0.55) * total
    second = take.between(0.2, 0.35) * total
    start = take.between(0.0, 0.1) * total
    return place(n, [(start, blast(first)), (start + first + 0.15, blast(second))])


def whistling(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 1150.0 * own.ratio(1.3) * pitch
    steps = (0, 2, 4, 5, 7, 9, 12)
    frequency, level = np.zeros(n), np.zeros(n)
    at, here = 0, base
    while at < n:
        m = min(n - at, samples(take.between(0.18, 0.55) / pace))
        there = base * 2.0 ** (take.pick(steps) / 12.0)
        glided = min(m, samples(0.05))
        frequency[at : at + m] = there
        frequency[at : at + glided] = np.linspace(here, there, glided)
        level[at : at + m] = fade(m, 0.03, 0.05) * take.between(0.6, 1.0)
        at, here = at + m, there
    vibrato = 1.0 + 0.012 * np.sin(2 * np.pi * own.between(4.5, 6.5) * np.arange(n) / RATE_HZ)
    tone = harmonics(glide(frequency * vibrato, n), [1.0, 0.06])
    breath = bandpass(take.noise(n), base * 1.5, 2.0)
    return (tone + 0.12 * breath) * level


def organ(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 196.0 * own.ratio(1.5) * pitch
    chords = ((0, 4, 7), (0, 3, 7), (0, 5, 9), (-1, 2, 7))
    weights = [own.between(0.3, 1.0) / k for k in (1, 2, 3, 4, 6, 8)]
    length = own.between(0.9, 1.8) / pace

    def chord(notes: tuple[int, ...], m: int) -> Array:
        f0 = base * 2.0 ** (np.array(notes) / 12.0)
        f = np.outer(f0, [1, 2, 3, 4, 6, 8]).ravel()
        return partials(f, np.full(len(f), 40.0), np.tile(weights, len(f0)), m) * fade(
            m, 0.05, 0.08
        )

    events, now = [], 0.0
    while now < n / RATE_HZ:
        held = length * take.ratio(1.2)
        events.append((now, chord(take.pick(chords), samples(held))))
        now += held * 0.97
    return place(n, events)


def bowed_string(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 294.0 * own.ratio(1.6) * pitch
    body = (own.between(280.0, 500.0), own.between(900.0, 1500.0), own.between(2200.0, 3200.0))
    notes = [base * 2.0 ** (take.pick((0, 2, 4, 5, 7, -3)) / 12.0) for _ in range(take.count(1, 4))]
    held = -(-n // len(notes))
    t = np.arange(n) / RATE_HZ
    vibrato = 1.0 + 0.008 * np.sin(2 * np.pi * own.between(4.8, 6.4) * t)
    frequency = np.repeat(notes, held)[:n] * vibrato
    raw = (np.cumsum(frequency) / RATE_HZ) % 1.0 - 0.5  # saw: the string sticks and slips
    raw += 0.03 * take.noise(n)
    wave = sum((bandpass(raw, f, 1.8) * g for f, g in zip(body, (1.0, 0.8, 0.5), strict=True)))
    bow = np.tile(fade(held, 0.12, 0.1), len(notes))[:n]
    return (wave + 0.15 * lowpass(raw, 5000.0)) * bow * wander(take, n, 0.8, 0.7, 1.0)


def electric_hum(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = own.pick((50.0, 60.0)) * pitch * take.ratio(1.002)
    orders = np.array([1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 18, 22])
    weights = [own.between(0.1, 1.0) / k**0.6 for k in orders]
    phases = 6.283 * own.units(len(orders))
    hum = partials(base * orders, np.full(len(orders), 90.0), weights, n, phases)
    return hum * wander(take, n, 1.0, 0.85, 1.0) + 0.02 * take.noise(n)


SOUNDS = (
    Sound(
        "steady tone",
        "a steady tone",
        steady_tone,
        (
            "A steady tone plays without changing",
            "A constant electronic tone",
            "One sustained pure note is held",
            "A test tone sounds continuously",
            "A sine wave drones on at one pitch",
            "A continuous beep that does not stop",
        ),
        pitched=True,
    ),
    Sound(
        "frequency sweep",
        "a frequency sweep",
        sweep,
        (
            "A tone sweeps through the frequencies again and again",
            "An electronic sound glides in pitch",
            "A synthesizer sweep is repeated",
            "A swooping electronic tone, like a slide whistle",
            "The pitch of a tone slides from one end to the other",
            "Science fiction sweeps of a synthetic tone",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "siren",
        "a siren",
        siren,
        (
            "A siren wails",
            "An emergency vehicle siren goes up and down",
            "An ambulance passes with its siren on",
            "A police siren is blaring in the street",
            "The siren of a fire engine rises and falls",
            "An emergency siren sounds",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "alarm beeping",
        "a beeping alarm",
        alarm,
        (
            "An alarm clock beeps in short bursts",
            "A digital alarm is going off",
            "Electronic beeps repeat",
            "The alarm of a watch beeps over and over",
            "A smoke detector beeps a warning",
            "Short beeps come in groups",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "telephone ringing",
        "a ringing telephone",
        telephone,
        (
            "A telephone rings",
            "An old phone is ringing and nobody answers",
            "The bell of a rotary telephone rings repeatedly",
            "A phone rings, pauses and rings again",
            "A landline phone is ringing in a room",
            "Repeated rings of a classic telephone",
        ),
        pitched=True,
    ),
    Sound(
        "train horn",
        "a train horn",
        train_horn,
        (
            "A train blows its horn",
            "The horn of a locomotive sounds twice",
            "A train approaching a crossing sounds its horn",
            "A long blast of an air horn followed by a shorter one",
            "A freight train honks",
            "A chord blown by the air horns of a train",
        ),
        pitched=True,
    ),
    Sound(
        "whistling",
        "a whistled tune",
        whistling,
        (
            "A person whistles a tune",
            "Someone is whistling a melody",
            "A man whistles to himself",
            "A simple melody is whistled",
            "Someone whistles cheerfully while walking",
            "Human whistling, moving from note to note",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "organ",
        "an organ",
        organ,
        (
            "An organ plays chords",
            "A church organ is played",
            "Chords on a pipe organ",
            "Someone plays harmonies on an organ",
            "Sustained organ chords follow one another",
            "Solemn organ music",
        ),
        pitched=True,
    ),
    Sound(
        "bowed string",
        "a bowed string",
        bowed_string,
        (
            "A string instrument is bowed",
            "Someone plays long notes on a violin",
            "A bow is drawn across a string",
            "A cello or violin plays with vibrato",
            "Long bowed notes of a fiddle",
            "A string player practises slow notes",
        ),
        pitched=True,
    ),
    Sound(
        "electric hum",
        "an electric hum",
        electric_hum,
        (
            "An electrical hum continues without pause",
            "A transformer is humming",
            "The mains hum of an amplifier",
            "A low electric buzz from a power line",
            "A fluorescent lamp hums",
            "Constant low humming of electrical equipment",
        ),
    ),
)
