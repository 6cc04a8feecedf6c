"""Weather, water, fire and other sounds made of noise."""

from __future__ import annotations

import numpy as np

from residual_audio.data.draws import Array, Draws
from residual_audio.data.sounds.kit import (
    RATE_HZ,
    Sound,
    bandpass,
    beats,
    curve,
    decay,
    fade,
    highpass,
    lowpass,
    place,
    samples,
    sprinkle,
    wander,
)


def wind(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    noise = take.noise(n)
    gust = wander(take, n, own.between(0.5, 1.1) / pace, 0.05, 1.0)
    howl = own.between(320.0, 650.0) * pitch
    low = lowpass(noise, 260.0 * pitch)
    # two neighbouring resonances, faded into one another, sound like one that moves
    calm, strong = bandpass(noise, howl, 9.0), bandpass(noise, 1.45 * howl, 9.0)
    return low * (0.4 + gust) + gust * (calm * (1.0 - gust) + 1.3 * gust * strong)


def rain(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    hiss = highpass(take.noise(n), own.between(900.0, 1800.0))
    drops = bandpass(sprinkle(take, n, own.between(150.0, 500.0) * pace, 0.5), 3200.0 * pitch, 0.7)
    return 0.25 * hiss * wander(take, n, 1.2, 0.75, 1.0) + own.between(0.5, 1.0) * drops


def sea_waves(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    period = own.between(2.4, 4.0) / pace
    t = np.arange(n) / RATE_HZ / period + take.unit()
    way = t % 1.0
    swell = np.where(way < 0.35, way / 0.35, (1.0 - way) / 0.65) ** 1.6
    noise = take.noise(n)
    foam = bandpass(noise, own.between(1500.0, 2600.0) * pitch, 0.5)
    return 0.5 * lowpass(noise, 350.0) * (0.25 + swell) + foam * (0.04 + swell**1.5)


def crackling_fire(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    crackle = sprinkle(take, n, own.between(18.0, 45.0) * pace, 0.9)
    snaps = bandpass(crackle, own.between(1800.0, 3600.0) * pitch, 1.2)
    roar = lowpass(take.noise(n), 180.0) * wander(take, n, 0.35, 0.5, 1.0)
    return snaps + own.between(0.5, 1.2) * roar


def thunder(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    total = n / RATE_HZ
    start = take.between(0.02, 0.15) * total
    events = []
    for k in range(take.count(3, 6)):
        m = samples(total * take.between(0.5, 0.9))
        rumble = lowpass(lowpass(take.noise(m), 140.0 * pitch * own.ratio(1.3)), 260.0)
        rolling = decay(m, take.between(0.25, 0.6) * total / 2, take.between(0.02, 0.2))
        delay = 0.0 if k == 0 else take.between(0.05, 0.45) * total
        events.append((start + delay, rumble * rolling * take.between(0.5, 1.0)))
    m = samples(0.5)
    crack = bandpass(take.noise(m), 900.0 * pitch, 0.5) * decay(m, 0.07, 0.004)
    events.append((start, own.between(0.1, 0.4) * crack))
    return place(n, events)


def radio_static(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    floor = bandpass(take.noise(n), own.between(1400.0, 2400.0) * pitch, 0.45)
    pops = bandpass(sprinkle(take, n, own.between(60.0, 160.0) * pace, 0.8), 2000.0 * pitch, 0.6)
    cuts = wander(take, n, 0.12, 0.0, 1.0) > own.between(0.1, 0.25)
    return floor * (0.25 + 0.75 * cuts) + 0.6 * pops


def steam(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    jet = highpass(highpass(take.noise(n), 4200.0 * own.ratio(1.25) * pitch), 3000.0 * pitch)
    period = own.between(1.0, 2.2) / pace
    m = samples(period * own.between(0.6, 0.85))
    puffs = place(n, [(s, fade(m, 0.05, 0.25)) for s in beats(take, n / RATE_HZ, period, 0.1)])
    return jet * (0.05 + puffs)


def applause(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    m = samples(0.06)
    people = own.count(25, 60)
    palms = [
        bandpass(own.noise(m), 1300.0 * own.ratio(1.5) * pitch, 1.3) * decay(m, 0.008, 0.001)
        for _ in range(8)
    ]
    out = np.zeros(n + m)
    for i in range(people):
        period = own.between(0.19, 0.32) / pace
        hand, level = palms[i % 8], own.between(0.3, 1.0)
        for start in beats(take, n / RATE_HZ, period, 0.12):
            at = samples(start)
            out[at : at + m] += level * hand
    return out[:n] * curve([take.between(0.5, 1.0) for _ in range(4)], n)


def noise_bursts(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    length = own.between(0.1, 0.3) / pace
    colour = 1800.0 * own.ratio(2.0) * pitch
    m = samples(length)
    starts = beats(take, n / RATE_HZ, length * own.between(2.0, 3.5), 0.1)
    shape = fade(m, 0.004, 0.01)
    return place(n, [(s, bandpass(take.noise(m), colour, 0.5) * shape) for s in starts])


def stream(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    noise = take.noise(n)
    bed = bandpass(noise, 750.0 * pitch * own.ratio(1.2), 0.7)
    bubbles = sprinkle(take, n, own.between(70.0, 140.0) * pace, 0.45)
    tuned = bandpass(bubbles, 620.0 * pitch, 12.0) + bandpass(bubbles[::-1], 1150.0 * pitch, 12.0)
    return 0.15 * bed * wander(take, n, 0.2, 0.6, 1.0) + own.between(0.8, 1.5) * tuned


SOUNDS = (
    Sound(
        "wind",
        "blowing wind",
        wind,
        (
            "The wind howls",
            "Wind is blowing hard",
            "Strong gusts of wind",
            "Wind whistles around a house",
            "A storm wind rises and falls",
            "Gusty wind outdoors",
        ),
    ),
    Sound(
        "rain",
        "falling rain",
        rain,
        (
            "Rain is falling",
            "Heavy rain pours down",
            "Raindrops patter on a roof",
            "A rain shower",
            "It is raining steadily",
            "Rain falls on leaves and pavement",
        ),
    ),
    Sound(
        "sea waves",
        "sea waves",
        sea_waves,
        (
            "Waves roll onto a beach",
            "The sea washes against the shore",
            "Ocean waves break and draw back",
            "Surf at the seaside",
            "Waves crash on the rocks one after another",
            "The sound of the ocean",
        ),
    ),
    Sound(
        "crackling fire",
        "a crackling fire",
        crackling_fire,
        (
            "A fire crackles",
            "Wood burns and crackles in a fireplace",
            "A camp fire pops and snaps",
            "Flames crackle",
            "Burning logs snap in the fire",
            "A bonfire is burning",
        ),
    ),
    Sound(
        "thunder",
        "thunder",
        thunder,
        (
            "Thunder rumbles",
            "A clap of thunder rolls across the sky",
            "A thunderstorm with a deep rumble",
            "Thunder cracks and rolls away",
            "Rolling thunder",
            "Lightning strikes and thunder follows",
        ),
    ),
    Sound(
        "radio static",
        "radio static",
        radio_static,
        (
            "Static on the radio",
            "A radio without a station crackles",
            "White noise with pops from an old radio",
            "Interference and static",
            "A detuned radio hisses and crackles",
            "A broken signal full of static",
        ),
    ),
    Sound(
        "hissing steam",
        "hissing steam",
        steam,
        (
            "Steam hisses",
            "Air escapes from a valve with a hiss",
            "Bursts of steam are released",
            "A spray can hisses",
            "Gas leaks with a sharp hissing sound",
            "A steam engine lets off steam",
        ),
        paced=True,
    ),
    Sound(
        "applause",
        "applause",
        applause,
        (
            "An audience applauds",
            "People are clapping their hands",
            "A crowd claps",
            "Applause in a theatre",
            "Many hands clap together",
            "The public gives a round of applause",
        ),
    ),
    Sound(
        "noise bursts",
        "bursts of noise",
        noise_bursts,
        (
            "Bursts of noise repeat",
            "Short bursts of white noise",
            "Noise is switched on and off",
            "Abrupt pulses of electronic noise",
            "A pulsing noise stops and starts",
            "Repeated blasts of static noise",
        ),
        paced=True,
    ),
    Sound(
        "flowing stream",
        "a flowing stream",
        stream,
        (
            "A stream flows over stones",
            "Water gurgles in a brook",
            "A small river is babbling",
            "Running water bubbles along",
            "Water flows and gurgles",
            "A creek trickles through the forest",
        ),
    ),
)
