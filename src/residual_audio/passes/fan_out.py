"""Going on from saved states with parts of the network replaced: one clip in, one copy a change.

The stream entering every block is kept from one ordinary pass. A change in block b then costs the
blocks from b on, and the changes of a block share all that comes before them: one clip enters the
block, the edit fans it out into one copy a change, and the copies go on as a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from residual_audio.models.encoder import Edit
from residual_audio.models.head_copies import HeadCopies
from residual_audio.types import Site, Unit, attention_site

Values = Mapping[tuple[Site, str], Tensor]
"""(site, "raw" or "out") → what one clip, or each clip of a batch, had there."""
Instead = Callable[[Site, str], Tensor | float]
"""What takes the place at a site: a number, or [head, d_head] or [token, head, d_head] before W_O
(`raw`), [width] or [token, width] after (`out`)."""


@dataclass(frozen=True)
class Swap:
    """What one copy has replaced."""

    unit: Unit
    tokens: Mapping[int, Tensor] | None = None
    """Stage → [token], true where it is replaced; None: everywhere."""


def plan_blocks(first: Sequence[int], at_once: int) -> list[tuple[int, list[int]]]:
    """(first block, numbers) of each group of changes that run together."""
    by_block: dict[int, list[int]] = {}
    for i, block in enumerate(first):
        by_block.setdefault(block, []).append(i)
    return [
        (block, members[i : i + at_once])
        for block, members in sorted(by_block.items())
        for i in range(0, len(members), at_once)
    ]


def fan_out(changes: Sequence[Swap], sites: Sequence[Site], instead: Instead) -> Edit:
    """An edit whose copy i of the clip has `changes[i]`.

    The batch is one clip (or already one copy a change) before the first edited site.
    """
    raw: dict[Site, list[tuple[int, int]]] = {}
    out: dict[Site, list[int]] = {}
    for copy, change in enumerate(changes):
        for head in change.unit.heads:
            site = attention_site(head, sites)
            if site not in change.unit.sites:
                raw.setdefault(site, []).append((copy, head.head))
        for site in change.unit.sites:
            out.setdefault(site, []).append(copy)
    edit: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
    for site, places in raw.items():
        copies, heads = (list(column) for column in zip(*places, strict=True))
        value = instead(site, "raw")
        if isinstance(value, Tensor):
            value = value.unflatten(0, (-1, site.n_heads)) if value.ndim == 2 else value
            value = value[:, heads].transpose(0, 1)  # place (token or 1) d_head
        where = _where(changes, copies, site.stage)
        if copies == list(range(len(changes))):
            edit[site, "raw"] = HeadCopies(tuple(heads), value, where)
        else:
            edit[site, "raw"] = _replace(len(changes), copies, heads, value, where)
    for site, rows in out.items():
        where = _where(changes, rows, site.stage)
        edit[site, "out"] = _replace(len(changes), rows, None, instead(site, "out"), where)
    return edit


def _where(changes: Sequence[Swap], copies: Sequence[int], stage: int) -> Tensor | None:
    """[place, token, 1], or None where every token is replaced."""
    masks = [changes[copy].tokens for copy in copies]
    given = [mask[stage] for mask in masks if mask is not None]
    if not given:
        return None
    everywhere = torch.ones_like(given[0])
    return torch.stack([everywhere if m is None else m[stage] for m in masks])[..., None]


def _replace(
    n_copies: int,
    copies: list[int],
    heads: list[int] | None,
    value: Tensor | float,
    where: Tensor | None,
) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x = x.expand(n_copies, *x.shape[1:]).clone()
        rows = torch.tensor(copies, device=x.device)
        if heads is None:
            new = value if where is None else torch.where(where.to(x.device), value, x[rows])
            x[rows] = new
        else:
            columns = torch.tensor(heads, device=x.device)
            old = x[rows, :, columns]
            x[rows, :, columns] = (
                value if where is None else torch.where(where.to(x.device), value, old)  # type: ignore[assignment]
            )
        return x

    return change
