"""First-order ablation: one backward pass estimates the effect of every unit on every clip.

Each unit u is mixed with its replacement, v(m) = m v + (1 − m) r, and the measure is differentiated
at m = 1. Removing the unit (m = 0) then changes the measure by about −∂/∂m, that is by
⟨∂measure/∂v, r − v⟩ summed over tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from residual_audio.ablation.effects import Effects, collect
from residual_audio.ablation.exact import Means
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.models.encoder import Edit
from residual_audio.passes.kept import Audio, Batches
from residual_audio.types import Site, Unit, attention_site

DIFFERENTIABLE = ("margin", "loss")


class Masks:
    """One m a clip and head (or site), at 1, through which gradients reach the units."""

    def __init__(
        self, sites: Sequence[Site], units: Sequence[Unit], mode: str, means: Means | None
    ) -> None:
        self._sites = sites
        self._raw = {attention_site(head, sites) for unit in units for head in unit.heads}
        self._out = {site for unit in units for site in unit.sites}
        self._means = means if mode == "mean" else None
        self.values: dict[tuple[Site, str], Tensor] = {}

    def edit(self, removed: Unit | None = None) -> Edit:
        """Fresh masks; units already `removed` stay out (their mask is 0)."""
        self.values = {}
        edit: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
        for site in self._raw:
            gone = [h.head for h in (removed.heads if removed else ()) if h in site.heads]
            edit[site, "raw"] = self._mix(site, "raw", gone)
        for site in self._out:
            out_gone = removed is not None and site in removed.sites
            edit[site, "out"] = self._mix(site, "out", [0] if out_gone else [])
        return edit

    def _mix(self, site: Site, point: str, gone: list[int]) -> Callable[[Tensor], Tensor]:
        def change(x: Tensor) -> Tensor:
            n = site.n_heads if point == "raw" else 1
            mask = x.new_ones(len(x), n)
            mask[:, gone] = 0.0
            mask.requires_grad_(True)
            self.values[site, point] = mask
            m = mask[:, None, :, None] if point == "raw" else mask[:, None, :]
            if self._means is None:
                return x * m
            rest = (self._means.raw if point == "raw" else self._means.out)[site]
            return x * m + (1 - m) * rest.to(x)

        return change

    def gradients(self, total: Tensor, keep: bool) -> dict[tuple[Site, str], Tensor]:
        keys = list(self.values)
        found = torch.autograd.grad(total, [self.values[k] for k in keys], retain_graph=keep)
        return dict(zip(keys, found, strict=True))


def first_order_ablation(
    model: Audio,
    batches: Batches,
    judge: Judge,
    units: Sequence[Unit],
    *,
    mode: Literal["zero", "mean"] = "zero",
    means: Means | None = None,
    measures: Sequence[str] = ("margin",),
    removed: Unit | None = None,
    progress: Callable[[int], None] | None = None,
) -> Effects:
    """Estimated measures of every clip without each unit; only smooth measures can be estimated.

    Each further measure costs one more backward pass. With `removed`, those units are already out
    and the estimate is of removing one more.
    """
    for measure in measures:
        if measure not in DIFFERENTIABLE:
            raise InputError(
                f"'{measure}' has no useful derivative: first-order takes "
                f"{' or '.join(DIFFERENTIABLE)}"
            )
    if mode not in ("zero", "mean"):
        raise InputError(f"first-order estimates 'zero' and 'mean' removal, not '{mode}'")
    if mode == "mean" and means is None:
        raise InputError("mode 'mean' needs the means of a reference set (reference_means)")
    sites = model.encoder.sites
    masks = Masks(sites, units, mode, means)
    places = [_places(unit, sites) for unit in units]
    n = len(judge)
    before = {m: np.full(n, np.nan) for m in measures}
    after = {m: np.full((len(units), n), np.nan) for m in measures}
    start = time.perf_counter()
    for clips, features in batches:
        with torch.enable_grad():
            joint = model.joint(model.encoder.encode(features, edit=masks.edit(removed)))
            found = judge.measure(joint, clips, joint.detach())
        index = clips.numpy()
        for i, measure in enumerate(measures):
            value = found[measure].detach().cpu().numpy()
            # clips of a batch do not see each other: one sum gives each clip's own gradient
            slopes = masks.gradients(found[measure].sum(), keep=i + 1 < len(measures))
            before[measure][index] = value
            for u, members in enumerate(places):
                slope = sum(slopes[key][:, column] for key, column in members)
                after[measure][u, index] = value - torch.as_tensor(slope).cpu().numpy()
        if progress is not None:
            progress(len(clips))
    seen = ~np.isnan(before[measures[0]])
    if not seen.any():
        raise InputError("there is no clip to measure an ablation on")
    return collect(
        [unit.name for unit in units],
        {m: v[seen] for m, v in before.items()},
        {m: v[:, seen] for m, v in after.items()},
        method="first-order",
        mode=mode,
        seconds=time.perf_counter() - start,
    )


def _places(unit: Unit, sites: Sequence[Site]) -> list[tuple[tuple[Site, str], int]]:
    """Where the masks of a unit are: ((site, point), column)."""
    places: list[tuple[tuple[Site, str], int]] = [((s, "out"), 0) for s in unit.sites]
    for head in unit.heads:
        site = attention_site(head, sites)
        if site not in unit.sites:
            places.append(((site, "raw"), head.head))
    return places
