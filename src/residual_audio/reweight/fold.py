"""Gains folded into weights: the result is an ordinary model with no cost at run time.

Heads:      y = H A + c before W_O    →  W_O,h ← A W_O,h,   b ← b + Σ_h c_h W_O,h
Sites:      y = o A + c after W_O     →  W ← W A,           b ← b A + c
Output:     y = l A + c on the latent →  W₁ ← A W₁,         b₁ ← b₁ + c W₁  (first of the head)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError, ModelError
from residual_audio.models.encoder import Encoder
from residual_audio.models.joint import JointHead
from residual_audio.reweight.gains import affine_of, check_fits, check_gains
from residual_audio.reweight.network import NetworkGains
from residual_audio.types import Gains, parse_units


class Foldable(Protocol):
    """As much of a model as gains can be folded into."""

    @property
    def name(self) -> str: ...

    @property
    def encoder(self) -> Encoder: ...

    @property
    def head(self) -> JointHead: ...


@dataclass
class Fold:
    """What folding replaced, so that it can be put back bit by bit."""

    _kept: list[tuple[Tensor, Tensor]]

    @torch.no_grad()
    def undo(self) -> None:
        """Restore the weights as they were; a second call does nothing."""
        while self._kept:
            parameter, value = self._kept.pop()
            parameter.copy_(value)


def check_foldable(model: Foldable, gains: Gains) -> None:
    """Refuse gains that no weights of this model can stand for."""
    check_gains(gains)
    if gains.path != "network":
        raise InputError(
            "gains on the direct path act on each unit's contribution to the latent alone; no "
            "weights do that, so they cannot be folded. Fit with --path network to export."
        )
    latent = int(model.head.config["d_in"]) if "output" in gains.gains else 0
    # folding twice meets weights that no longer hash to what they were
    check_fits(gains, model.encoder.sites, latent)


@torch.no_grad()
def fold(model: Foldable, gains: Gains) -> Fold:
    """Fold network gains into `model`, in place."""
    check_foldable(model, gains)
    sites = model.encoder.sites
    kept: list[tuple[Tensor, Tensor]] = []
    names = list(gains.gains)
    units_by_number = parse_units(names, sites)
    places = NetworkGains(gains, sites).places
    # a block's gains act before W_O, then after it
    order = sorted(places.items(), key=lambda item: item[0][1] == "out")
    for (site, point), units in order:
        weight, bias = model.encoder.output_projection(site)
        _keep(kept, weight, bias)
        w = weight.double().cpu().numpy()
        b = bias.double().cpu().numpy()
        for i in units:
            a, c = affine_of(gains, names[i])
            if point == "raw":
                (head,) = units_by_number[i].heads
                rows = slice(head.head * site.d_head, (head.head + 1) * site.d_head)
                b = b + c @ w[rows]
                w[rows] = a @ w[rows]
            else:
                w, b = w @ a, b @ a + c
        weight.copy_(torch.from_numpy(w))
        bias.copy_(torch.from_numpy(b))
    if "output" in gains.gains:
        first = first_layer(model)
        _keep(kept, first.weight, first.bias)
        a, c = affine_of(gains, "output")
        w = first.weight.double().cpu().numpy().T
        first.bias.add_(torch.from_numpy(c @ w))
        first.weight.copy_(torch.from_numpy((a @ w).T))
    return Fold(kept)


def _keep(kept: list[tuple[Tensor, Tensor]], *parameters: Tensor) -> None:
    kept.extend((parameter, parameter.clone()) for parameter in parameters)


def first_layer(model: Foldable) -> nn.Linear:
    """The layer of the joint head that reads the latent."""
    found: Iterator[nn.Linear] = (m for m in model.head.modules() if isinstance(m, nn.Linear))
    first = next(found, None)
    if first is None or first.bias is None or not model.head.reads_latent:
        raise ModelError(
            f"the joint head of '{model.name}' ({model.head.kind}) has no first layer with a bias "
            "that reads the latent: gains of the unit 'output' cannot be folded into it"
        )
    return first
