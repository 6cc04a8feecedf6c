"""Where in a clip a head responds: what every patch adds to a clip's place on a component.

What a patch adds to a clip's coordinate along a component is exact: with norm statistics frozen
the coordinate is a sum over tokens (see `models.direct_path`), so the picture sums to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.atlas.components import ComponentsOfRun
from residual_audio.capture.tokens import grid_order
from residual_audio.direct.time_totals import StageSums
from residual_audio.models.direct_path import DirectPath
from residual_audio.models.encoder import Encoder
from residual_audio.types import Site

RESPONSE_SIZE = (64, 16)
"""Time and frequency steps of a response, at most."""


class HeardTokens:
    """A tap that keeps head outputs of every token, and what the stages write in all."""

    points = StageSums.points | {"raw"}

    def __init__(self, first: Site) -> None:
        self.raw: dict[Site, Tensor] = {}
        self.sums = StageSums(first)

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if point == "raw" and isinstance(where, Site):
            self.raw[where] = value
        else:
            self.sums(point, where, value)


@dataclass(frozen=True)
class Directions:
    """Of one attention site: where each shown component of its heads points, before W_O."""

    along: Tensor
    """[slot, head, d_head, component]"""
    offset: Tensor
    """[head, component]: the coordinate of the mean, which the responses leave out."""


def directions_of(components: ComponentsOfRun, site: Site) -> Directions:
    """For the direct path: one direction a slot; else one for all tokens."""
    most = max((components[head].n_shown for head in site.heads), default=0)
    along, offsets = [], []
    for head in site.heads:
        one = components[head]
        basis = one.spectrum.basis[: one.n_shown]
        own = basis.T
        if components.direct:
            own = components.contributions.operator(head).astype(np.float64) @ own
        missing = most - one.n_shown
        along.append(np.pad(own, ((0, 0), (0, missing))).reshape(-1, site.d_head, most))
        offsets.append(np.pad(basis @ one.spectrum.mean, (0, missing)))
    return Directions(
        torch.from_numpy(np.stack(along, 1).astype(np.float32)),
        torch.from_numpy(np.stack(offsets).astype(np.float32)),
    )


def responses(
    encoder: Encoder, heard: HeardTokens, site: Site, found: Directions, path: DirectPath | None
) -> Tensor:
    """[clip, head, component, time, frequency]: what each place adds to a centred coordinate;
    without a path, of a head's mean over tokens."""
    raw = heard.raw[site]  # clip token head d_head
    n_tokens = raw.shape[1]
    if path is None:
        terms = torch.einsum("cthd,hdk->cthk", raw, found.along[0]) / n_tokens
    else:
        weight = path.weights(heard.sums.scales)[site.stage]  # clip instance slot
        seen = torch.einsum("cishd,shdk->cishk", path.view(site.stage, raw), found.along)
        pooled = seen * weight[..., None, None]
        # the way back from instances and slots to tokens
        places = path.view(site.stage, torch.arange(n_tokens)[None]).flatten()
        terms = raw.new_zeros(len(raw), n_tokens, *pooled.shape[3:])
        terms[:, places] = pooled.flatten(1, 2)
    order, n_times, n_bands = grid_order(encoder.time_frequency(site.stage, n_tokens))
    grid = (terms[:, order] - found.offset / len(order)).unflatten(1, (n_times, n_bands))
    return _summed(grid.permute(0, 3, 4, 1, 2))


def _summed(grid: Tensor) -> Tensor:
    """At most `RESPONSE_SIZE`; neighbours are added up, so that the sum stays."""
    n_times, n_bands = grid.shape[-2:]
    size = (min(n_times, RESPONSE_SIZE[0]), min(n_bands, RESPONSE_SIZE[1]))
    if size == (n_times, n_bands):
        return grid
    small = F.adaptive_avg_pool2d(grid.flatten(1, 2), size).unflatten(1, grid.shape[1:3])
    return small * (n_times * n_bands / (size[0] * size[1]))
