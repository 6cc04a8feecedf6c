"""Gains as low-rank updates of weights: exactly a LoRA, to be handed out without the weights.

A layer y = x W + b takes gains of what enters it (heads, the latent) or of what leaves it (sites).
With A − I = L R of a unit (L = Φᵀ and R = diag(λ − 1) Φ where the mean is kept):

Enters:  x ← x A + c    →  W + L (R W),   b + c W     down = Lᵀ,      up = (R W)ᵀ
Leaves:  y ← y A + c    →  W + (W L) R,   b + b L R + c   down = (W L)ᵀ,  up = Rᵀ

Several units of one layer are put side by side into one update, one rank a component that moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from residual_audio.models.peft_adapter import OUTPUT, LowRankUpdate, Place
from residual_audio.reweight.fold import Foldable, check_foldable, first_layer
from residual_audio.reweight.gains import affine_of
from residual_audio.reweight.lora import LowRank
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.uncorrelated import readers_of
from residual_audio.types import FloatArray, Gains, parse_units


@dataclass
class _Layer:
    """A layer on its way: weights as changed so far, and what changed them."""

    weight: FloatArray
    """[inner, width]"""
    bias: FloatArray
    before: FloatArray
    """The bias it began with."""
    down: list[FloatArray] = field(default_factory=list)
    up: list[FloatArray] = field(default_factory=list)

    def enters(self, rows: slice, left: FloatArray, right: FloatArray, shift: FloatArray) -> None:
        w = self.weight[rows]
        wide = np.zeros((left.shape[1], len(self.weight)))
        wide[:, rows] = left.T
        self.down.append(wide)
        self.up.append((right @ w).T)
        self.bias = self.bias + shift @ w
        self.weight[rows] = w + left @ (right @ w)

    def leaves(self, left: FloatArray, right: FloatArray, shift: FloatArray) -> None:
        self.down.append((self.weight @ left).T)
        self.up.append(right.T)
        self.bias = self.bias + (self.bias @ left) @ right + shift
        self.weight = self.weight + (self.weight @ left) @ right

    def update(self) -> LowRankUpdate | None:
        """None where nothing moved; a rank of at least one, which PEFT asks for."""
        down, up = np.concatenate(self.down), np.concatenate(self.up, axis=1)
        bias = self.bias - self.before
        if not len(down):
            if not bias.any():
                return None
            down, up = np.zeros((1, len(self.weight))), np.zeros((len(bias), 1))
        return LowRankUpdate(down, up, bias)


def low_rank_form(model: Foldable, gains: Sequence[Gains]) -> dict[Place, LowRankUpdate]:
    """Network gains, one after another, as updates of the layers they act at; the model stays."""
    layers: dict[Place, _Layer] = {}
    for each in gains:
        check_foldable(model, each)
        names = list(each.gains)
        units = parse_units(names, model.encoder.sites)
        places = NetworkGains(each, model.encoder.sites).places
        # a block's gains act before W_O, then after it
        for (site, point), numbers in sorted(places.items(), key=lambda item: item[0][1] == "out"):
            if site not in layers:
                layers[site] = _layer(*model.encoder.output_projection(site))
            for i in numbers:
                if point == "raw":
                    (head,) = units[i].heads
                    rows = slice(head.head * site.d_head, (head.head + 1) * site.d_head)
                    layers[site].enters(rows, *_factors(each, names[i]))
                else:
                    layers[site].leaves(*_factors(each, names[i]))
        if OUTPUT in each.gains:
            if OUTPUT not in layers:
                first = first_layer(model)
                layers[OUTPUT] = _layer(first.weight.T, first.bias)
            layers[OUTPUT].enters(slice(None), *_factors(each, OUTPUT))
    found = {place: layer.update() for place, layer in layers.items()}
    return {place: update for place, update in found.items() if update is not None}


def trained_form(lora: LowRank) -> dict[Place, LowRankUpdate]:
    """A trained low-rank baseline in the same form."""
    return {
        site: LowRankUpdate(_array(down).T, _array(up).T, np.zeros(site.width))
        for site, down, up in zip(lora.sites, lora.down, lora.up, strict=True)
    }


@torch.no_grad()
def apply_updates(model: Foldable, updates: Mapping[Place, LowRankUpdate]) -> None:
    """W ← W + up down, b ← b + bias, in place: what a merged adapter is."""
    for place, update in updates.items():
        if isinstance(place, str):
            first = first_layer(model)
            layer: tuple[Tensor, Tensor] = first.weight.T, first.bias
        else:
            layer = model.encoder.output_projection(place)
        weight, bias = layer
        weight.add_(torch.from_numpy((update.up @ update.down).T).to(weight))
        bias.add_(torch.from_numpy(update.bias).to(bias))


def _factors(gains: Gains, unit: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """L [d, k] and R [k, d] with A − I = L R, and c; components with a gain of 1 are left out."""
    a, c = affine_of(gains, unit)
    basis = np.asarray(gains.spectra[unit].basis, np.float64)
    if not gains.keep_mean or not len(basis):
        whole = a - np.eye(len(c))
        moved = whole.any(1)
        return np.eye(len(c))[:, moved], whole[moved], c
    change = np.asarray(gains.gains[unit], np.float64) - 1.0
    moved = change != 0
    read = np.asarray(readers_of(gains.spectra[unit]), np.float64)
    return read[moved].T, change[moved, None] * basis[moved], c


def _layer(weight: Tensor, bias: Tensor) -> _Layer:
    b = _array(bias)
    return _Layer(_array(weight), b, b.copy())


def _array(value: Tensor) -> FloatArray:
    """In float64, a copy."""
    found: FloatArray = value.detach().double().cpu().numpy().copy()
    return found
