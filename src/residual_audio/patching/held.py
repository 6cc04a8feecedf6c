"""What one pass over the clips of some exchanges keeps, and where in it a target is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from residual_audio.models.encoder import State, States
from residual_audio.patching.exchanges import Exchange, Exchanges
from residual_audio.patching.targets import Target, stage_of_block
from residual_audio.types import Site, attention_site


@dataclass(frozen=True)
class MeasuredExchanges:
    """Of some exchanges: the measure of both clips and with each target exchanged."""

    clean: Tensor
    """[exchange]"""
    corrupt: Tensor
    patched: Tensor
    """[target, exchange]"""


class HeldPass(States):
    """Streams, all values, and for the direct path the scale of the norms."""

    def __init__(self, sites: Sequence[Site], blocks: set[int], scales: bool = False) -> None:
        super().__init__(sites, blocks, values=True)
        self._sites = sites
        if scales:
            self.points = self.points | {"scale"}
        self.scales: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if point == "scale" and isinstance(where, int):
            self.scales[where] = value
        super().__call__(point, where, value)

    @property
    def lengths(self) -> dict[int, int]:
        """Stage → tokens."""
        return {site.stage: value.shape[1] for (site, _), value in self.values.items()}

    def start(
        self, block: int, clean: int, corrupt: int, targets: Sequence[Target], masks: TokenMasks
    ) -> State:
        """The corrupt clip entering a block; one copy a target where streams are exchanged."""
        entering = self.states[block]
        stream, alone = entering.tokens, entering.take(slice(corrupt, corrupt + 1))
        if all(target.stream is None for target in targets):
            return alone
        copies = stream[corrupt][None].repeat(len(targets), 1, 1)
        stage = stage_of_block(block, self._sites)
        for i, target in enumerate(targets):
            if target.stream is None:
                continue
            mask = masks.of(target)
            if mask is None:
                copies[i] = stream[clean]
            else:
                copies[i] = torch.where(mask[stage][:, None], stream[clean], stream[corrupt])
        heard = None if alone.heard is None else alone.heard.expand(len(copies), -1)
        return State(block, copies, heard)


class TokenMasks:
    """Which tokens a target means in the clips of one exchange."""

    def __init__(self, given: Exchanges, item: Exchange, keep: HeldPass) -> None:
        self._encoder, self._lengths = given.model.encoder, keep.lengths
        self._device = given.model.device
        self.duration_s = given.durations_s[item.clean]
        self._found: dict[Target, dict[int, Tensor] | None] = {}

    def of(self, target: Target) -> dict[int, Tensor] | None:
        if target not in self._found:
            masks = target.tokens(self._encoder, self._lengths, self.duration_s)
            if masks is not None:
                masks = {stage: mask.to(self._device) for stage, mask in masks.items()}
            self._found[target] = masks
        return self._found[target]


Key = tuple[Site, str]


def keys_of(target: Target, sites: Sequence[Site]) -> list[tuple[Key, int | None]]:
    """Where a target is: (site, point), and for a head its number."""
    found: list[tuple[Key, int | None]] = [((site, "out"), None) for site in target.unit.sites]
    for head in target.unit.heads:
        site = attention_site(head, sites)
        if site not in target.unit.sites:
            found.append(((site, "raw"), head.head))
    if target.stream is not None:
        found.append(((_entered(target.stream, sites), "stream"), None))
    return found


def _entered(block: int, sites: Sequence[Site]) -> Site:
    return [site for site in sites if site.kind == "attention"][block]


def points_of(
    targets: Sequence[Target], sites: Sequence[Site], keep: HeldPass
) -> dict[Key, Tensor]:
    """Every tensor that a target lies in."""
    wanted = dict.fromkeys(key for target in targets for key, _ in keys_of(target, sites))
    streams = {_entered(block, sites): state.tokens for block, state in keep.states.items()}
    return {
        (site, point): streams[site] if point == "stream" else keep.values[site, point]
        for site, point in wanted
    }


def measured(
    given: Exchanges,
    numbers: Sequence[int],
    where: dict[int, int],
    joint: Tensor,
    patched: Tensor,
) -> MeasuredExchanges:
    def of(row: int, item: Exchange) -> Tensor:
        return item.measure(joint[where[row]][None], joint[where[item.clean]])[0]

    items = [given.items[n] for n in numbers]
    clean = torch.stack([of(item.clean, item) for item in items])
    corrupt = torch.stack([of(item.corrupt, item) for item in items])
    return MeasuredExchanges(clean, corrupt, patched)
