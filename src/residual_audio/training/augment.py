"""Changes of log-mels in training, a whole batch at a time, all drawn from one generator.

Log-mels are decibels, [clip, frame, mel]. Sounds add in power, so mixing and noise go through it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from residual_audio.training.recipe import Augmentation

_DB = 10.0 / torch.log(torch.tensor(10.0)).item()


@dataclass(frozen=True)
class Mixed:
    """A changed batch: who was mixed into whom, and how much of each is left."""

    features: Tensor
    partner: Tensor
    """[clip] row of the other clip; a clip's own row where nothing was mixed in."""
    own: Tensor
    """[clip] weight of the clip itself, 0 to 1; its partner has the rest."""


def add_db(a: Tensor, b: Tensor) -> Tensor:
    """Level of two sounds together."""
    return torch.logaddexp(a / _DB, b / _DB) * _DB


def uniform(n: int, low: float, high: float, source: Generator) -> Tensor:
    return torch.rand(n, generator=source) * (high - low) + low


def augment(
    x: Tensor, movable: Tensor, settings: Augmentation, floor_db: float, source: Generator
) -> Mixed:
    """`movable` marks clips that may be rolled and mixed: those that are not about order.

    `floor_db` is the front-end's level of silence.
    """
    x = move(x, movable, settings, source)
    x = colour(x, settings, source).clamp(min=floor_db)
    x = add_noise(x, settings.noise, source)
    mixed = mix(x, movable, settings, source)
    return Mixed(mask(mixed.features, settings, source), mixed.partner, mixed.own)


def move(x: Tensor, movable: Tensor, settings: Augmentation, source: Generator) -> Tensor:
    """Roll in time, play faster or slower, shift by mel bands: one gather."""
    n, n_frames, n_mels = x.shape
    speed = (1 + settings.speed) ** uniform(n, -1, 1, source)
    start = uniform(n, 0, n_frames, source) if settings.shift else torch.zeros(n)
    start = torch.where(movable, start, torch.zeros(n))
    speed = torch.where(movable, speed, speed.clamp(max=1.0))  # faster would wrap the beginning in
    frames = (start[:, None] + torch.arange(n_frames) * speed[:, None]).long() % n_frames
    step = torch.randint(-settings.pitch, settings.pitch + 1, (n, 1), generator=source)
    mels = (torch.arange(n_mels) + step).clamp(0, n_mels - 1)
    return x[torch.arange(n)[:, None, None], frames[:, :, None], mels[:, None, :]]


def colour(x: Tensor, settings: Augmentation, source: Generator) -> Tensor:
    """Gain and spectral tilt."""
    n, _, n_mels = x.shape
    gain = uniform(n, -settings.gain_db, settings.gain_db, source)
    tilt = uniform(n, -settings.tilt_db, settings.tilt_db, source)
    slope = torch.linspace(-1, 1, n_mels) * tilt[:, None]
    return x + (gain[:, None] + slope)[:, None, :]


def level_db(x: Tensor) -> Tensor:
    """Mean power of each clip."""
    return (torch.logsumexp(x.flatten(1) / _DB, 1) - torch.log(torch.tensor(x[0].numel()))) * _DB


def add_noise(x: Tensor, share: float, source: Generator) -> Tensor:
    """Steady noise of a random colour, 5 to 30 dB below the clip, flickering as noise does."""
    n, _, n_mels = x.shape
    chosen = torch.rand(n, generator=source) < share
    below = uniform(n, 5, 30, source)
    slope = torch.linspace(-1, 1, n_mels) * uniform(n, -10, 10, source)[:, None]
    flicker = torch.empty_like(x).exponential_(generator=source).clamp(min=1e-3).log() * _DB * 0.5
    noise = (level_db(x) - below)[:, None, None] + slope[:, None, :] + flicker
    return torch.where(chosen[:, None, None], add_db(x, noise), x)


def mix(x: Tensor, movable: Tensor, settings: Augmentation, source: Generator) -> Mixed:
    """Lay another clip over, or let another follow (`cut`); partners are movable clips too."""
    n, n_frames, _ = x.shape
    candidates = movable.nonzero().flatten()
    partner = torch.arange(n)
    own = torch.ones(n)
    draw = torch.rand(n, generator=source)
    advantage = uniform(n, -6, 6, source)  # decibels by which a clip is louder than its partner
    at = (uniform(n, 0.3, 0.7, source) * n_frames).long()
    if len(candidates) < 2:
        return Mixed(x, partner, own)
    shuffled = candidates[torch.randperm(len(candidates), generator=source)]
    partner[shuffled] = shuffled.roll(1)
    other = x[partner]
    levelled = other + (level_db(x) - level_db(other) - advantage)[:, None, None]
    laid = (draw < settings.mix) & movable
    follows = (draw >= settings.mix) & (draw < settings.mix + settings.cut) & movable
    later = torch.arange(n_frames)[None, :] >= at[:, None]
    spliced = torch.where(later[..., None], levelled, x)
    out = torch.where(laid[:, None, None], add_db(x, levelled), x)
    out = torch.where(follows[:, None, None], spliced, out)
    own = torch.where(laid, torch.sigmoid(advantage / 4), own)
    own = torch.where(follows, at / n_frames, own)
    partner = torch.where(laid | follows, partner, torch.arange(n))
    return Mixed(out, partner, own)


def mask(x: Tensor, settings: Augmentation, source: Generator) -> Tensor:
    """Bands of time and of frequency set to the clip's mean."""
    n, n_frames, n_mels = x.shape
    hidden = torch.zeros(n, n_frames, n_mels, dtype=torch.bool)
    for _ in range(settings.masks):
        for size, most, axis in ((n_frames, settings.time_mask, 1), (n_mels, settings.mel_mask, 2)):
            width = (uniform(n, 0, 1, source) * (most + 1)).long()
            first = (uniform(n, 0, 1, source) * (size - width + 1)).long()
            place = torch.arange(size)[None, :]
            band = (place >= first[:, None]) & (place < (first + width)[:, None])
            hidden |= band[:, :, None] if axis == 1 else band[:, None, :]
    return torch.where(hidden, x.mean((1, 2), keepdim=True), x)
