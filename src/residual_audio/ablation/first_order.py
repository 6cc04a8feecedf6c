"""First-order ablation: one backward pass estimates the effect of every unit on every clip.

Each unit u is mixed with its replacement, v(m) = m v + (1 − m) r, and the measure is differentiated
at m = 1. Removing the unit (m = 0) then changes the measure by about −∂/∂m, that is by
⟨∂measure/∂v, r − v⟩ summed over tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from residual_audio.ablation.effects import About, Effects, Measured
from residual_audio.ablation.removal import ZERO, Replacement
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.models.encoder import Edit, Features
from residual_audio.models.precision import prepare, products_in
from residual_audio.passes.kept import Audio, Batches
from residual_audio.passes.shares import on_cores
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Site, Unit, UnitLike, attention_site, parse_units

DIFFERENTIABLE = ("margin", "loss")


class _Mixed(torch.autograd.Function):
    """m v + (1 − m) r; where every m is 1 that is v, and nothing is multiplied on either way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, mean: Tensor | None, gone: bool) -> Tensor:
        m = _as_wide(mask, x) if gone else None
        ctx.save_for_backward(x, m, mean)
        if m is None:
            return x.view_as(x)
        return x * m if mean is None else x * m + (1 - m) * mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        x, m, mean = ctx.saved_tensors
        along = slope * (x if mean is None else x - mean)
        of_mask = along.sum((1, 3)) if x.ndim == 4 else along.sum((1, 2))[:, None]
        return slope if m is None else slope * m, of_mask, None, None


def _as_wide(mask: Tensor, x: Tensor) -> Tensor:
    """[clip, head or 1] beside [clip, token, head, d_head] or [clip, token, width]."""
    return mask[:, None, :, None] if x.ndim == 4 else mask[:, None, :]


class Masks:
    """One m a clip and head (or site), at 1, through which gradients reach the units."""

    def __init__(self, sites: Sequence[Site], units: Sequence[Unit], instead: Replacement) -> None:
        self._sites = sites
        self._raw = {attention_site(head, sites) for unit in units for head in unit.heads}
        self._out = {site for unit in units for site in unit.sites}
        self._instead = instead
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
            mask = x.new_ones(len(x), site.n_heads if point == "raw" else 1)
            mask[:, gone] = 0.0
            mask.requires_grad_(True)
            self.values[site, point] = mask
            mean = self._instead.mean(site, point)
            return _Mixed.apply(x, mask, None if mean is None else mean.to(x), bool(gone))  # type: ignore[no-any-return, no-untyped-call]

        return change

    def gradients(self, total: Tensor, keep: bool) -> dict[tuple[Site, str], Tensor]:
        keys = list(self.values)
        found = torch.autograd.grad(total, [self.values[k] for k in keys], retain_graph=keep)
        return dict(zip(keys, found, strict=True))


def first_order_ablation(
    model: Audio,
    batches: Batches,
    judge: Judge,
    units: Sequence[UnitLike],
    instead: Replacement = ZERO,
    *,
    measures: Sequence[str] = ("margin",),
    removed: Unit | None = None,
    progress: Progress = SILENT,
) -> Effects:
    """Estimated measures of every clip without each unit; only smooth measures can be estimated.

    Each further measure costs one more backward pass. With `removed`, those units are already out
    and the estimate is of removing one more.
    """
    _check(measures, instead)
    sites = model.encoder.sites
    wanted = parse_units(units, sites)
    own = [_places(unit, sites) for unit in wanted]
    places = [place for of_unit in own for place in of_unit]
    owner = torch.repeat_interleave(torch.tensor([len(of_unit) for of_unit in own]))
    measured = Measured.empty(measures, len(wanted), len(judge))

    def estimate(clips: Tensor, features: Features) -> None:
        masks = Masks(sites, wanted, instead)
        with torch.enable_grad():
            joint = model.joint(model.encoder.encode(features, edit=masks.edit(removed)))
            found = judge.measure(joint, clips, joint.detach())
            # clips of a batch do not see each other: one sum gives each clip's own gradient
            sums = {measure: found[measure].sum() for measure in measures}
        after = {}
        for i, measure in enumerate(measures):
            slopes = masks.gradients(sums[measure], keep=i + 1 < len(measures))
            by_column = torch.cat([slope.T for slope in slopes.values()])  # column clip
            rows = by_column.new_zeros(len(wanted), len(clips))
            rows.index_add_(0, owner, by_column[_columns(slopes, places)])
            after[measure] = found[measure] - rows  # unit clip
        measured.put_before(clips, found)
        measured.put_after(range(len(wanted)), clips, after)

    start = time.perf_counter()
    laid_out = prepare("float32", torch.device("cpu"))
    for number, (clips, features) in enumerate(batches):
        # laying weights out for both ways costs as much as it saves in one batch
        with products_in("float32", torch.device("cpu"), laid_out) if number else nullcontext():
            on_cores(estimate, clips, features)
        progress.advance(len(clips))
    about = About("first-order", instead.mode, time.perf_counter() - start)
    return measured.effects([unit.name for unit in wanted], about)


def _columns(
    slopes: Mapping[tuple[Site, str], Tensor], places: Sequence[tuple[tuple[Site, str], int]]
) -> list[int]:
    """Where each place is when the columns of all slopes stand in a row."""
    before, first = 0, {}
    for key, slope in slopes.items():
        first[key] = before
        before += slope.shape[1]
    return [first[key] + column for key, column in places]


def _check(measures: Sequence[str], instead: Replacement) -> None:
    for measure in measures:
        if measure not in DIFFERENTIABLE:
            raise InputError(
                f"'{measure}' has no useful derivative: first-order takes "
                f"{' or '.join(DIFFERENTIABLE)}"
            )
    if instead.mode == "resample":
        raise InputError("first-order estimates 'zero' and 'mean' removal, not 'resample'")


def _places(unit: Unit, sites: Sequence[Site]) -> list[tuple[tuple[Site, str], int]]:
    """Where the masks of a unit are: ((site, point), column)."""
    places: list[tuple[tuple[Site, str], int]] = [((s, "out"), 0) for s in unit.sites]
    for head in unit.heads:
        site = attention_site(head, sites)
        if site not in unit.sites:
            places.append(((site, "raw"), head.head))
    return places
