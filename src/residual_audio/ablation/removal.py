"""Taking units out: what takes their place, and the edits that do it inside the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Constant, Edit
from residual_audio.passes.fan_out import Swap, Values, fan_out
from residual_audio.passes.kept import Audio, Batches
from residual_audio.types import Site, UnitLike, attention_site, parse_unit

Mode = Literal["zero", "mean", "resample"]


@dataclass(frozen=True)
class Means:
    """Mean over clips and tokens, in the space that is replaced."""

    raw: Mapping[Site, Tensor] = field(default_factory=dict)
    """attention site → [head, d_head], before W_O."""
    out: Mapping[Site, Tensor] = field(default_factory=dict)
    """site → [width], what the site adds to the stream."""


@dataclass(frozen=True)
class Replacement:
    """What takes the place of a unit: nothing, its mean, or its value in another clip."""

    mode: Mode = "zero"
    means: Means | None = None
    """Of a reference set (`reference_means`), where the mean is taken."""

    def __post_init__(self) -> None:
        if self.mode not in ("zero", "mean", "resample"):
            raise InputError(f"'{self.mode}' is no replacement: use zero, mean or resample")
        if self.mode == "mean" and self.means is None:
            raise InputError("mode 'mean' needs the means of a reference set (reference_means)")

    def mean(self, site: Site, point: str) -> Tensor | None:
        """[head, d_head] before W_O (`raw`), [width] after (`out`); None where it is not used."""
        if self.mode != "mean" or self.means is None:
            return None
        return (self.means.raw if point == "raw" else self.means.out)[site]


ZERO = Replacement()


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
    tap = _Sum()
    for _, features in batches:
        model.encoder.encode(features, tap=tap)
    if not tap.total:
        raise InputError("there is no clip to take reference means over")
    mean = {key: (total / tap.n[key]).float() for key, total in tap.total.items()}
    return Means(
        {site: value for (site, point), value in mean.items() if point == "raw"},
        {site: value for (site, point), value in mean.items() if point == "out"},
    )


def removal(
    units: Sequence[UnitLike],
    sites: Sequence[Site],
    instead: Replacement = ZERO,
    donor: Values | None = None,
) -> Edit:
    """An edit whose copy i of the clip lacks `units[i]`; `donor` is the clip to resample from.

    The batch is one clip before the first edited site and one copy a unit after it.
    """

    def value(site: Site, point: str) -> Tensor | float:
        mean = instead.mean(site, point)
        if mean is not None:
            return mean
        return 0.0 if donor is None else donor[site, point]

    return fan_out([Swap(parse_unit(unit, sites)) for unit in units], sites, value)


def remove(unit: UnitLike, sites: Sequence[Site], instead: Replacement = ZERO) -> Edit:
    """An edit that takes one unit (or set) out of every clip of a batch of any size."""
    if instead.mode == "resample":
        raise InputError("another clip's values are not at hand here: use zero or mean")
    found = parse_unit(unit, sites)
    by_site: dict[Site, list[int]] = {}
    for head in found.heads:
        site = attention_site(head, sites)
        if site not in found.sites:
            by_site.setdefault(site, []).append(head.head)
    edit: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
    for site, heads in by_site.items():
        edit[site, "raw"] = _without_heads(heads, instead.mean(site, "raw"))
    for site in found.sites:
        mean = instead.mean(site, "out")
        edit[site, "out"] = Constant(0.0 if mean is None else mean)
    return edit


def _without_heads(heads: list[int], mean: Tensor | None) -> Callable[[Tensor], Tensor]:
    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[:, :, heads] = 0.0 if mean is None else mean[heads]
        return x

    return change
