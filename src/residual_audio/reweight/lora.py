"""Low-rank updates of W_O: what a sceptic compares gains with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError
from residual_audio.models.encoder import Edit, Encoded
from residual_audio.types import Site, blocks_of


class LowRank(nn.Module):
    """W_O + A B at the given attention sites, with B = 0 at the start (Hu et al. 2021)."""

    def __init__(self, all_sites: Sequence[Site], sites: Sequence[Site], rank: int, seed: int = 0):
        super().__init__()
        if rank < 1 or not sites:
            raise InputError(f"a low-rank update needs sites and a rank of at least 1, not {rank}")
        self._all = tuple(all_sites)
        self.sites = tuple(sites)
        draw = torch.Generator().manual_seed(seed)
        self.down = nn.ParameterList(
            nn.Parameter(torch.randn(s.n_heads * s.d_head, rank, generator=draw) / s.width**0.5)
            for s in sites
        )
        self.up = nn.ParameterList(nn.Parameter(torch.zeros(rank, s.width)) for s in sites)

    @property
    def first_block(self) -> int:
        index = blocks_of(self._all)
        return min(index[s.stage, s.block] for s in self.sites)

    def edit(self) -> Edit:
        edits: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
        for site, down, up in zip(self.sites, self.down, self.up, strict=True):
            read, add = _pair(down, up)
            edits[site, "raw"], edits[site, "out"] = read, add
        return edits

    def output(self, encoded: Encoded) -> Encoded:
        return encoded


def _pair(
    down: Tensor, up: Tensor
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The edit before W_O keeps what the one after it needs."""
    seen: list[Tensor] = []

    def read(heads: Tensor) -> Tensor:
        seen.append(heads.flatten(-2) @ down)
        return heads

    def add(out: Tensor) -> Tensor:
        return out + seen.pop() @ up

    return read, add


def rank_within(budget: int, sites: Sequence[Site]) -> tuple[list[Site], int]:
    """Sites and rank of the largest update with at most `budget` numbers.

    Rank 1 on as many of the last attention sites as fit; a higher rank where all of them fit.
    """
    attention = [site for site in sites if site.kind == "attention"]
    one = [site.n_heads * site.d_head + site.width for site in attention]
    if sum(one) <= budget:
        return attention, budget // sum(one)
    chosen: list[Site] = []
    left = budget
    for site, cost in zip(reversed(attention), reversed(one), strict=True):
        if cost > left:
            break
        chosen.insert(0, site)
        left -= cost
    if not chosen:
        raise InputError(f"a low-rank update of any site needs more than {budget} numbers")
    return chosen, 1
