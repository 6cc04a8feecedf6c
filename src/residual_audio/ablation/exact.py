"""Exact ablation: run the network again without the unit, but only what comes after it.

The stream entering every block is kept from one ordinary pass. A unit of block b then costs the
blocks from b on, and the units of a block share all that comes before their removal: one clip
enters the block, the edit fans it out into one copy a unit, and the copies go on as a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from residual_audio.ablation.effects import Effects, collect
from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES, Judge
from residual_audio.models.encoder import Edit, State
from residual_audio.passes.kept import Audio, Batches
from residual_audio.types import Site, Unit, attention_site

Mode = Literal["zero", "mean", "resample"]


@dataclass(frozen=True)
class Means:
    """Mean over clips and tokens, in the space that is replaced."""

    raw: Mapping[Site, Tensor] = field(default_factory=dict)
    """attention site → [head, d_head], before W_O."""
    out: Mapping[Site, Tensor] = field(default_factory=dict)
    """site → [width], what the site adds to the stream."""


class _Keep:
    """A tap that keeps the streams entering blocks and, if asked, what each site gave."""

    def __init__(self, sites: Sequence[Site], blocks: set[int], values: bool) -> None:
        self.points = frozenset({"stream", "raw", "out"} if values else {"stream"})
        attention = [site for site in sites if site.kind == "attention"]
        self._index = {site: i for i, site in enumerate(attention)}
        self._blocks = blocks
        self.streams: dict[int, Tensor] = {}
        self.values: dict[tuple[Site, str], Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if not isinstance(where, Site):
            return
        if point == "stream":
            if self._index[where] in self._blocks:
                self.streams[self._index[where]] = value
        else:
            self.values[where, point] = value


class _Sum:
    """A tap that sums raw and out over clips and tokens, in float64."""

    points = frozenset({"raw", "out"})

    def __init__(self) -> None:
        self.total: dict[tuple[Site, str], Tensor] = {}
        self.n: dict[tuple[Site, str], int] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        if isinstance(where, Site):
            part = value.sum((0, 1), dtype=torch.float64)
            key = (where, point)
            self.total[key] = self.total.get(key, torch.zeros_like(part)) + part
            self.n[key] = self.n.get(key, 0) + value.shape[0] * value.shape[1]


@torch.no_grad()
def reference_means(model: Audio, batches: Batches) -> Means:
    """Mean of every head (before W_O) and of every site over a reference set."""
    tap: Any = _Sum()
    for _, features in batches:
        model.encoder.encode(features, tap=tap)
    if not tap.total:
        raise InputError("there is no clip to take reference means over")
    mean = {key: (total / tap.n[key]).float() for key, total in tap.total.items()}
    return Means(
        {site: value for (site, point), value in mean.items() if point == "raw"},
        {site: value for (site, point), value in mean.items() if point == "out"},
    )


@torch.no_grad()
def exact_ablation(
    model: Audio,
    batches: Batches,
    judge: Judge,
    units: Sequence[Unit],
    *,
    mode: Mode = "zero",
    means: Means | None = None,
    units_per_batch: int = 32,
    progress: Callable[[int], None] | None = None,
) -> Effects:
    """Measures of every clip without each unit.

    `mode="resample"` takes the value of the previous clip of the batch: give batches in a shuffled
    order, so that the neighbour is any clip and not one of the same class.
    """
    if mode == "mean" and means is None:
        raise InputError("mode 'mean' needs the means of a reference set (reference_means)")
    sites = model.encoder.sites
    plan = plan_units(units, sites, units_per_batch)
    n = len(judge)
    before = {m: np.full(n, np.nan) for m in MEASURES}
    after = {m: np.full((len(units), n), np.nan) for m in MEASURES}
    seen = np.zeros(n, bool)
    start = time.perf_counter()
    donor: dict[tuple[Site, str], Tensor] = {}
    for clips, features in batches:
        keep = _Keep(sites, {block for block, _ in plan}, values=mode == "resample")
        base = model.joint(model.encoder.encode(features, tap=keep))
        for name, value in judge.measure(base, clips, base).items():
            before[name][clips.numpy()] = value.cpu().numpy()
        seen[clips.numpy()] = True
        if mode == "resample":
            values = _previous(keep.values, donor)
            donor = {key: value[-1:] for key, value in keep.values.items()}
        for block, members in plan:
            group = [units[i] for i in members]
            for row, clip in enumerate(clips):
                of_clip = {k: v[row] for k, v in values.items()} if mode == "resample" else None
                edit = removal(group, sites, mode, means, of_clip)
                state = State(block, keep.streams[block][row : row + 1])
                joint = model.joint(model.encoder.encode(None, edit=edit, start=state))
                found = judge.measure(joint[:, None], clip[None], base[row : row + 1])
                for name, value in found.items():
                    after[name][members, int(clip)] = value[:, 0].cpu().numpy()
        if progress is not None:
            progress(len(clips))
    if not seen.any():
        raise InputError("there is no clip to measure an ablation on")
    return collect(
        [unit.name for unit in units],
        {m: v[seen] for m, v in before.items()},
        {m: v[:, seen] for m, v in after.items()},
        method="exact",
        mode=mode,
        seconds=time.perf_counter() - start,
    )


def plan_units(
    units: Sequence[Unit], sites: Sequence[Site], units_per_batch: int
) -> list[tuple[int, list[int]]]:
    """(first block, unit numbers) of each group of units that run together."""
    by_block: dict[int, list[int]] = {}
    for i, unit in enumerate(units):
        by_block.setdefault(unit.block, []).append(i)
    return [
        (block, members[i : i + units_per_batch])
        for block, members in sorted(by_block.items())
        for i in range(0, len(members), units_per_batch)
    ]


def removal(
    units: Sequence[Unit],
    sites: Sequence[Site],
    mode: Mode = "zero",
    means: Means | None = None,
    values: Mapping[tuple[Site, str], Tensor] | None = None,
) -> Edit:
    """An edit whose copy i of the clip lacks `units[i]`.

    The batch is one clip before the first edited site and one copy a unit after it.
    """
    raw: dict[Site, list[tuple[int, int]]] = {}
    out: dict[Site, list[int]] = {}
    for copy, unit in enumerate(units):
        for head in unit.heads:
            site = attention_site(head, sites)
            if site not in unit.sites:
                raw.setdefault(site, []).append((copy, head.head))
        for site in unit.sites:
            out.setdefault(site, []).append(copy)
    edit: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
    for site, places in raw.items():
        copies, heads = (torch.tensor(column) for column in zip(*places, strict=True))
        value: Tensor | float = 0.0
        if mode == "mean" and means is not None:
            value = means.raw[site][heads][:, None]  # place 1 d_head
        elif values is not None:
            value = values[site, "raw"][:, heads].transpose(0, 1)  # place token d_head
        edit[site, "raw"] = _replace(len(units), copies, heads, value)
        # asks for the site's output on its own, so that it may be larger than the stream it joins
        edit[site, "out"] = _unchanged
    for site, rows in out.items():
        value = 0.0
        if mode == "mean" and means is not None:
            value = means.out[site]
        elif values is not None:
            value = values[site, "out"]
        edit[site, "out"] = _replace(len(units), torch.tensor(rows), None, value)
    return edit


def _unchanged(x: Tensor) -> Tensor:
    return x


def _replace(
    n_copies: int, copies: Tensor, heads: Tensor | None, value: Tensor | float
) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x = x.expand(n_copies, *x.shape[1:]).clone()
        if heads is None:
            x[copies.to(x.device)] = value
        else:
            x[copies.to(x.device), :, heads.to(x.device)] = value
        return x

    return change


def remove(
    unit: Unit,
    sites: Sequence[Site],
    mode: Literal["zero", "mean"] = "zero",
    means: Means | None = None,
) -> Edit:
    """An edit that takes one unit (or set) out of every clip of a batch of any size."""
    if mode == "mean" and means is None:
        raise InputError("mode 'mean' needs the means of a reference set (reference_means)")
    edit: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
    by_site: dict[Site, list[int]] = {}
    for head in unit.heads:
        site = attention_site(head, sites)
        if site not in unit.sites:
            by_site.setdefault(site, []).append(head.head)

    def without_heads(site: Site, heads: list[int]) -> Callable[[Tensor], Tensor]:
        value = means.raw[site][heads] if mode == "mean" and means is not None else 0.0

        def change(x: Tensor) -> Tensor:
            x = x.clone()
            x[:, :, heads] = value
            return x

        return change

    def without(site: Site) -> Callable[[Tensor], Tensor]:
        value = means.out[site] if mode == "mean" and means is not None else 0.0
        return lambda x: torch.zeros_like(x) + value

    for site, heads in by_site.items():
        edit[site, "raw"] = without_heads(site, heads)
    for site in unit.sites:
        edit[site, "out"] = without(site)
    return edit


def _previous(
    values: Mapping[tuple[Site, str], Tensor], before: Mapping[tuple[Site, str], Tensor]
) -> dict[tuple[Site, str], Tensor]:
    """Each clip's donor values: those of the clip before it, the batch's last for its first."""
    out = {}
    for key, value in values.items():
        if len(value) > 1:
            out[key] = value.roll(1, 0)
        elif key in before:
            out[key] = before[key]
        else:
            raise InputError("mode 'resample' needs at least two clips")
    return out
