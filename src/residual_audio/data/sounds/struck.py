"""Things that are hit, plucked or dropped: short excitations of resonating bodies."""

from __future__ import annotations

import numpy as np

from residual_audio.data.draws import Array, Draws
from residual_audio.data.sounds.kit import (
    RATE_HZ,
    Sound,
    bandpass,
    beats,
    decay,
    glide,
    harmonics,
    highpass,
    lowpass,
    partials,
    place,
    samples,
)


def church_bell(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    strike = 420.0 * own.ratio(1.6) * pitch
    # hum, prime, tierce, quint, nominal and above: the partials of a minor-third bell
    ratios = np.array([0.5, 1.0, 1.19, 1.5, 2.0, 2.66, 3.01, 4.17])
    f = strike * ratios * np.array([own.ratio(1.01) for _ in ratios])
    ring = own.between(1.6, 3.0) / ratios**0.7
    loud = np.array([0.6, 0.8, 0.7, 0.35, 1.0, 0.5, 0.35, 0.3])
    period = own.between(1.1, 2.4) / pace
    starts = beats(take, n / RATE_HZ, period, 0.03)[:5]
    return place(n, [(s, take.between(0.6, 1.0) * partials(f, ring, loud, n)) for s in starts])


def wind_chimes(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 1500.0 * own.ratio(1.4) * pitch
    tubes = [base * 2.0 ** (k / 12.0) for k in (0, 2, 4, 7, 9, 12)]
    ring = own.between(0.5, 1.1)
    notes = [
        partials([f, 2.76 * f, 5.4 * f], [ring, ring / 2, ring / 5], [1.0, 0.5, 0.2], samples(1.5))
        for f in tubes
    ]
    count = max(2, round(n / RATE_HZ * own.between(3.0, 6.0) * pace))
    starts = np.sort(take.units(count)) * 0.85 * n / RATE_HZ
    return place(n, [(s, take.between(0.2, 1.0) * take.pick(notes)) for s in starts])


def plucked_string(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 165.0 * own.ratio(1.5) * pitch
    spot, stiff, ring = own.between(0.12, 0.35), own.between(0.0, 4e-4), own.between(0.5, 1.3)
    k = np.arange(1, 15)
    shape = np.abs(np.sin(np.pi * k * spot)) / k

    def pluck() -> Array:
        f = base * 2.0 ** (take.pick((0, 3, 5, 7, 10, 12)) / 12.0) * k * np.sqrt(1 + stiff * k**2)
        low = f < 0.45 * RATE_HZ
        return partials(f[low], (ring / k**0.8)[low], shape[low], samples(2.0))

    starts = beats(take, n / RATE_HZ, own.between(0.35, 0.8) / pace, 0.12)
    return place(n, [(s, take.between(0.5, 1.0) * pluck()) for s in starts])


def door_knock(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    wood = [f * own.ratio(1.25) * pitch for f in (190.0, 420.0, 880.0)]
    m = samples(0.18)
    spacing, count = own.between(0.16, 0.3) / pace, own.count(2, 5)

    def knock() -> Array:
        body = partials(wood, [0.035, 0.022, 0.012], [1.0, 0.7, 0.4], m)
        thud = lowpass(take.noise(m), 1400.0 * pitch) * decay(m, 0.008)
        return (body + 0.8 * thud) * take.between(0.7, 1.0)

    gap = own.between(0.4, 1.0) / pace
    groups = beats(take, n / RATE_HZ, spacing * count + gap, 0.1)
    events = [(g + spacing * k * take.ratio(1.06), knock()) for g in groups for k in range(count)]
    return place(n, events)


def clock(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    period = own.between(0.28, 0.6) / pace
    f = 2400.0 * own.ratio(1.4) * pitch
    m = samples(0.05)

    def tick(frequency: float) -> Array:
        click = partials([frequency, 1.73 * frequency], [0.006, 0.003], [1.0, 0.6], m)
        return click + 0.4 * bandpass(own.noise(m), 5500.0, 1.0) * decay(m, 0.002, 0.0003)

    pair = (tick(f), 0.8 * tick(f * own.between(0.75, 0.9)))
    starts = beats(take, n / RATE_HZ, period, 0.004)
    return place(n, [(s, pair[i % 2]) for i, s in enumerate(starts)])


def footsteps(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    period = own.between(0.42, 0.68) / pace
    hard = own.chance(0.5)
    thud, grit = own.between(70.0, 130.0) * pitch, own.between(1500.0, 4000.0)
    m = samples(0.3)

    def step() -> Array:
        heel = partials([thud, 2.3 * thud], [0.03, 0.02], [1.0, 0.5], m)
        scrape = bandpass(take.noise(m), grit * take.ratio(1.1), 0.9)
        sole = scrape * (decay(m, 0.012) if hard else decay(m, 0.06, 0.02))
        toe = np.roll(sole, samples(0.09)) * 0.5
        return (heel + (1.4 if hard else 1.0) * (sole + toe)) * take.between(0.6, 1.0)

    return place(n, [(s, step()) for s in beats(take, n / RATE_HZ, period, 0.06)])


def drum(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    head = 85.0 * own.ratio(1.4) * pitch
    m = samples(0.6)
    t = np.arange(m) / RATE_HZ
    drop = head * (1.0 + 0.8 * np.exp(-t / 0.03))
    boom = harmonics(glide(drop, m), [1.0, 0.2]) * decay(m, own.between(0.1, 0.25))
    slap = bandpass(own.noise(m), 1800.0, 0.8) * decay(m, 0.02)
    snare = highpass(own.noise(m), 1500.0) * decay(m, own.between(0.05, 0.1))
    low, high = boom + 0.3 * slap, 0.3 * boom + 0.6 * snare
    pattern = own.pick(("b.s.b.s.", "b.sbb.s.", "bbs.b.s.", "b.b.b.b."))
    step, offset = own.between(0.13, 0.24) / pace, take.count(0, 7)
    events = []
    for i in range(int(n / RATE_HZ / step) + 1):
        hit = pattern[(i + offset) % 8]
        if hit != ".":
            events.append((i * step, take.between(0.7, 1.0) * (low if hit == "b" else high)))
    return place(n, events)


def glass(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 2600.0 * own.ratio(1.4) * pitch
    f = base * np.array([1.0, 1.98 * own.ratio(1.05), 3.1 * own.ratio(1.05), 4.2])
    f = f[f < 0.47 * RATE_HZ]
    ring = own.between(0.12, 0.3) / np.arange(1, len(f) + 1)
    m = samples(1.0)

    def clink() -> Array:
        amplitude = np.array([take.between(0.4, 1.0) for _ in f])
        return partials(f * take.ratio(1.02), ring, amplitude, m) * take.between(0.4, 1.0)

    starts = beats(take, n / RATE_HZ, own.between(0.45, 1.1) / pace, 0.5)
    events = [(s, clink()) for s in starts]
    events += [(s + take.between(0.03, 0.12), 0.5 * clink()) for s in starts if take.chance(0.4)]
    return place(n, events)


def heartbeat(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    period = own.between(0.65, 1.0) / pace
    f = 55.0 * own.ratio(1.2) * pitch
    m = samples(0.2)

    def thump(frequency: float, length: float) -> Array:
        return lowpass(partials([frequency, 1.6 * frequency], [length] * 2, [1.0, 0.4], m), 220.0)

    lub, dub = thump(f, 0.05), 0.7 * thump(1.25 * f, 0.035)
    starts = beats(take, n / RATE_HZ, period, 0.03)
    beat = place(n, [(s + d, w) for s in starts for d, w in ((0.0, lub), (0.3 * period, dub))])
    return beat + 0.004 * lowpass(take.noise(n), 300.0)


def typing(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    m = samples(0.08)
    keys = []
    for _ in range(5):
        f = 1900.0 * own.ratio(1.5) * pitch
        click = bandpass(own.noise(m), f, 1.5) * decay(m, 0.006, 0.0005)
        body = partials([own.between(250.0, 420.0) * pitch], [0.01], [0.25], m)
        keys.append(click + body)
    events, now = [], take.between(0.0, 0.3)
    while now < n / RATE_HZ:
        events.append((now, take.between(0.4, 1.0) * take.pick(keys)))
        events.append((now + take.between(0.05, 0.09), 0.3 * take.pick(keys)))
        pause = take.between(0.3, 0.8) if take.chance(0.1) else take.between(0.07, 0.22)
        now += pause / pace
    return place(n, events)


def water_drops(own: Draws, take: Draws, n: int, pitch: float, pace: float) -> Array:
    base = 900.0 * own.ratio(1.5) * pitch

    def drop() -> Array:
        m = samples(take.between(0.08, 0.16))
        t = np.arange(m) / RATE_HZ
        # a bubble shrinks: its pitch rises while it dies away
        f = base * take.ratio(1.2) * (1.0 + 6.0 * t)
        return harmonics(glide(f, m), [1.0]) * decay(m, 0.025, 0.002) * take.between(0.4, 1.0)

    starts = beats(take, n / RATE_HZ, own.between(0.25, 0.8) / pace, 0.35)
    events = [(s, drop()) for s in starts]
    events += [(s + take.between(0.04, 0.15), 0.5 * drop()) for s in starts if take.chance(0.3)]
    return place(n, events)


SOUNDS = (
    Sound(
        "church bell",
        "a church bell",
        church_bell,
        (
            "A church bell tolls",
            "A large bell is struck again and again",
            "The bell of a tower rings the hour",
            "Church bells ring in the village",
            "A bell rings and fades away",
            "A heavy bronze bell is ringing",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "wind chimes",
        "wind chimes",
        wind_chimes,
        (
            "Wind chimes tinkle",
            "Metal chimes are moved by the breeze",
            "Small bells jingle at random",
            "A wind chime rings softly on a porch",
            "Bright metallic tinkling of chimes",
            "Delicate chimes ring in the wind",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "plucked string",
        "a plucked string",
        plucked_string,
        (
            "A guitar string is plucked",
            "Someone plucks the strings of a guitar",
            "Single notes are picked on an acoustic guitar",
            "A stringed instrument is being plucked",
            "A few notes on a harp or guitar",
            "Someone practises a guitar, note by note",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "door knock",
        "a knock on a door",
        door_knock,
        (
            "Someone knocks on a door",
            "Knocking on a wooden door",
            "A person raps on wood several times",
            "Knuckles knock on a door and wait",
            "A few knocks on wood",
            "A visitor is knocking at the door",
        ),
        paced=True,
    ),
    Sound(
        "clock ticking",
        "a ticking clock",
        clock,
        (
            "A clock ticks",
            "The tick tock of a wall clock",
            "A clock is ticking steadily in a quiet room",
            "Regular ticking of a mechanical clock",
            "The second hand of a clock moves with a tick",
            "A watch ticks",
        ),
        paced=True,
    ),
    Sound(
        "footsteps",
        "footsteps",
        footsteps,
        (
            "Footsteps on the floor",
            "Someone is walking",
            "A person walks along with regular steps",
            "Shoes step on the ground",
            "Someone walks down a corridor",
            "The steps of a person walking on gravel or stone",
        ),
        paced=True,
    ),
    Sound(
        "drum",
        "a drum",
        drum,
        (
            "A drum is played",
            "Someone plays a beat on the drums",
            "A drum kit plays a simple rhythm",
            "Bass drum and snare keep the beat",
            "Drumming in a steady rhythm",
            "A drummer plays a pattern",
        ),
        paced=True,
    ),
    Sound(
        "glass clinking",
        "clinking glasses",
        glass,
        (
            "Glasses clink",
            "Glasses are knocked together",
            "Someone sets down wine glasses with a clink",
            "Glassware clinks and rings",
            "A toast with clinking glasses",
            "Drinking glasses touch one another",
        ),
        pitched=True,
        paced=True,
    ),
    Sound(
        "heartbeat",
        "a heartbeat",
        heartbeat,
        (
            "A heart beats",
            "The double thump of a heartbeat",
            "A heartbeat heard through a stethoscope",
            "A muffled heart is beating",
            "Low regular thuds of a heart",
            "Someone's heart is pounding",
        ),
        paced=True,
    ),
    Sound(
        "keyboard typing",
        "typing on a keyboard",
        typing,
        (
            "Someone types on a keyboard",
            "Keys are clicking on a computer keyboard",
            "A person is typing",
            "The clatter of a keyboard in an office",
            "Fingers type on the keys",
            "Typing on a mechanical keyboard",
        ),
        paced=True,
    ),
    Sound(
        "water drops",
        "dripping water",
        water_drops,
        (
            "Water drips",
            "Drops of water fall into a basin",
            "A tap is dripping",
            "Single drops of water plop one after another",
            "Water drops fall in a cave",
            "A leaking faucet drips into the sink",
        ),
        pitched=True,
        paced=True,
    ),
)
