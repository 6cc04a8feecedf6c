"""Token vectors of a unit as a stream of batches: what sparse autoencoders are trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import torch
from torch import Tensor

from residual_audio.capture.cache import Cache
from residual_audio.capture.keep import parse_keep
from residual_audio.errors import InputError
from residual_audio.passes.sources import AudioInput
from residual_audio.surface.model import Model

CLIPS_AT_ONCE = 16


def token_stream(
    model: Model,
    items: Sequence[AudioInput],
    unit: str,
    *,
    batch_size: int = 4096,
    epochs: int | None = 1,
    mix: int = 8,
    seed: int = 0,
    sample_rate: int | None = None,
) -> Iterator[Tensor]:
    """Batches [batch_size, d] of single tokens of a unit, from files or waveforms.

    `unit` is a head (`s2.b5.h11`), a site (`s2.b5.mlp`) or a stream (`s2.b5.stream`, `s3.end`).
    Tokens of one clip resemble each other, so `mix` batches are held and drawn from at random
    (1: in order). `epochs=None` never ends, which trainers of SAEs ask for; clips come in another
    order each time. The last batch of all may be smaller.

    >>> import numpy as np, residual_audio as ra
    >>> noise = [np.random.default_rng(i).normal(size=32000) / 10 for i in range(3)]
    >>> batches = ra.token_stream(ra.load_model("nano"), noise, "s3.b1.h0", batch_size=20,
    ...                           sample_rate=32000)
    >>> [tuple(batch.shape) for batch in batches]
    [(20, 12), (20, 12), (8, 12)]
    """
    if not items:
        raise InputError("token_stream needs at least one sound")
    if min(batch_size, mix) < 1 or (epochs is not None and epochs < 1):
        raise InputError("batch_size, mix and epochs are at least 1")
    parse_keep(unit, model.encoder.sites)  # an unknown name is refused before anything runs
    draw = torch.Generator().manual_seed(seed)
    return _mixed(_tokens(model, items, unit, epochs, draw, sample_rate), batch_size, mix, draw)


def _tokens(
    model: Model,
    items: Sequence[AudioInput],
    unit: str,
    epochs: int | None,
    draw: torch.Generator,
    sample_rate: int | None,
) -> Iterator[Tensor]:
    """[token, d] of a few clips at a time."""
    for _ in count() if epochs is None else range(epochs):
        order = torch.randperm(len(items), generator=draw)
        for some in order.split(CLIPS_AT_ONCE):
            clips = [items[int(i)] for i in some]
            yield _rows(model.run(clips, keep=unit, sample_rate=sample_rate), unit)


def _rows(cache: Cache, unit: str) -> Tensor:
    return torch.cat([token_rows(cache, place, unit) for place in range(len(cache))])


def token_rows(cache: Cache, place: int, unit: str) -> Tensor:
    """[token, d] of one clip."""
    value = torch.from_numpy(cache.clip(place)[unit])[0]
    if value.ndim != 2:
        raise InputError(f"'{unit}' holds no vectors of tokens: name a head, site or stream")
    return value.float()


def _mixed(
    parts: Iterator[Tensor], batch_size: int, mix: int, draw: torch.Generator
) -> Iterator[Tensor]:
    """Batches drawn from what is held; everything comes exactly once."""
    held: list[Tensor] = []
    n_held = 0
    for part in parts:
        held.append(part)
        n_held += len(part)
        if n_held < mix * batch_size:
            continue
        rows = _shuffled(torch.cat(held), mix, draw)
        # half stays to be mixed with what comes; without mixing, all whole batches go
        go = n_held // batch_size if mix == 1 else max(1, n_held // batch_size // 2)
        yield from rows[: go * batch_size].split(batch_size)
        held = [rows[go * batch_size :]]
        n_held = len(held[0])
    if n_held:
        yield from _shuffled(torch.cat(held), mix, draw).split(batch_size)


def _shuffled(rows: Tensor, mix: int, draw: torch.Generator) -> Tensor:
    return rows if mix == 1 else rows[torch.randperm(len(rows), generator=draw)]
