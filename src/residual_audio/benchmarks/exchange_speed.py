"""All heads exchanged between two clips, both ways: from saved states, and by one backward pass,
against one full forward pass a head."""

from __future__ import annotations

import time

import numpy as np
import torch

from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import States
from residual_audio.passes.fan_out import Swap, fan_out
from residual_audio.passes.lengths import Rows
from residual_audio.patching.exchanges import Exchange, Exchanges
from residual_audio.patching.interchange import ExchangeWay, interchange
from residual_audio.patching.measures import likeness
from residual_audio.patching.outcomes import agreement
from residual_audio.types import units_of


def exchange_speed(
    model: AudioTextModel, features: torch.Tensor, naive_heads: int, seed: int
) -> dict[str, float]:
    """Seconds and ratios for the first two clips; the naive way is timed on a sample of heads."""
    sites = model.encoder.sites
    units = units_of(sites, "head")
    sample = np.random.default_rng(seed).permutation(len(units))[:naive_heads]
    two = features[:2]
    seconds = model.spec.n_samples / model.sample_rate_hz
    ways = ((0, 1), (1, 0))
    items = tuple(Exchange("pair", "pair", a, b, likeness) for a, b in ways)
    given = Exchanges(model, Rows.of(two), (seconds, seconds), items, {}, "embedding")

    @torch.no_grad()
    def naive() -> None:
        """Values of both clips, then a whole pass a head and direction."""
        for a, b in ways:
            keep = States(sites, set(), values=True)
            model.joint(model.encode(two[a : a + 1], tap=keep))
            for i in sample:
                edit = fan_out([Swap(units[i])], sites, lambda s, p: keep.values[s, p][0])  # noqa: B023
                model.joint(model.encode(two[b : b + 1], edit=edit))

    with torch.no_grad():
        model.joint(model.encode(two))  # warm
    spent = []
    for _ in range(3):
        start = time.perf_counter()
        naive()
        spent.append(time.perf_counter() - start)
    naive_seconds = min(spent) * len(units) / len(sample)
    exact = interchange(given, units)
    interchange(given, units, ExchangeWay("attribution"))  # warm
    slope = interchange(given, units, ExchangeWay("attribution"))
    return {
        "patching_naive_seconds": naive_seconds,
        "patching_exact_seconds": exact.seconds,
        "patching_attribution_seconds": slope.seconds,
        "patching_exact_ratio": naive_seconds / exact.seconds,
        "patching_attribution_ratio": naive_seconds / slope.seconds,
        "patching_attribution_rank_correlation": agreement(exact, slope).value,
    }
