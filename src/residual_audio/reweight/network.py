"""Gains inside the forward pass: trainable λ, applied at the sites through edits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from residual_audio.errors import InputError
from residual_audio.models.encoder import Edit, Encoded
from residual_audio.reweight.axes import attention_of
from residual_audio.reweight.gains import check_gains
from residual_audio.reweight.uncorrelated import centre_of, readers_of
from residual_audio.types import Gains, Site, attention_site, blocks_of, parse_units


class NetworkGains(nn.Module):
    """λ of many units as parameters; everything else (means, bases) is fixed.

    Called as `encoder.encode(features, edit=gains.edit())`, then `gains.output(encoded)`.
    """

    def __init__(
        self, gains: Gains, sites: Sequence[Site], *, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        check_gains(gains)
        if gains.path != "network":
            raise InputError("these gains act on the direct path: they do not run in the network")
        self._given = gains
        self._sites = tuple(sites)
        self._names = list(gains.gains)
        self._units = parse_units(self._names, sites)
        self.values = nn.ParameterList(
            nn.Parameter(torch.as_tensor(np.asarray(gains.gains[unit]), dtype=dtype))
            for unit in self._names
        )
        self.means = nn.ParameterDict(
            {
                str(i): nn.Parameter(torch.tensor(float(gains.means[unit]), dtype=dtype))
                for i, unit in enumerate(self._names)
                if unit in gains.means
            }
        )
        for i, unit in enumerate(self._names):
            spectrum = gains.spectra[unit]
            parts = {"mean": spectrum.mean, "basis": spectrum.basis}
            parts |= {"readers": readers_of(spectrum), "centre": centre_of(spectrum)}
            for part, array in parts.items():
                value = torch.as_tensor(np.asarray(array), dtype=dtype)
                self.register_buffer(f"{part}_{i}", value, persistent=False)

    @property
    def by_unit(self) -> list[list[Tensor]]:
        """Every unit's parameters: its gains, and that of its mean where it has one."""
        means = {int(i): [value] for i, value in self.means.items()}
        return [[value, *means.get(i, [])] for i, value in enumerate(self.values)]

    @property
    def first_block(self) -> int:
        """The earliest edited block; the number of blocks where only the output is edited."""
        index = blocks_of(self._sites)
        found = [index[s.stage, s.block] for s, _ in self.places]
        return min(found, default=len(index))

    @cached_property
    def places(self) -> dict[tuple[Site, str], list[int]]:
        """(site, point) → the units acting there, in the order in which they act."""
        found: dict[tuple[Site, str], list[int]] = {}
        for i, unit in enumerate(self._units):
            if unit.kind == "head":
                (head,) = unit.heads
                found.setdefault((attention_site(head, self._sites), "raw"), []).append(i)
                continue
            own = attention_of(unit, self._sites) if unit.kind == "stage" else unit.sites
            for site in own:
                found.setdefault((site, "out"), []).append(i)
        for units in found.values():  # a block's own gains come before those of its stage
            units.sort(key=lambda i: self._units[i].kind == "stage")
        return found

    def map(self, i: int) -> tuple[Tensor, Tensor]:
        """P [d, d] and c [d] of unit i, with y = x + x P + c (keep_mean) or y = x P + c."""
        basis, mean = getattr(self, f"basis_{i}"), getattr(self, f"mean_{i}")
        scale = self.values[i] - (1.0 if self._given.keep_mean else 0.0)
        if len(basis):
            p = getattr(self, f"readers_{i}").T @ (scale[:, None] * basis)
        else:  # one coarse gain
            p = scale * torch.eye(len(mean), dtype=mean.dtype, device=mean.device)
        c = -(getattr(self, f"centre_{i}") @ p)
        return p, c + (self.means[str(i)] - 1.0) * mean if str(i) in self.means else c

    def edit(self) -> Edit:
        """The edits of one forward pass; gradients reach λ through them."""
        edits: dict[tuple[Site, str], Callable[[Tensor], Tensor]] = {}
        for (site, point), units in self.places.items():
            edits[site, point] = (
                self._edit_heads(units) if point == "raw" else self._edit_out(units)
            )
        return edits

    def _edit_heads(self, units: list[int]) -> Callable[[Tensor], Tensor]:
        heads = [head.head for i in units for head in self._units[i].heads]
        maps = [self.map(i) for i in units]
        p, c = torch.stack([m[0] for m in maps]), torch.stack([m[1] for m in maps])
        keep = self._given.keep_mean

        def change(x: Tensor) -> Tensor:
            whole = len(heads) == x.shape[2] and heads == sorted(heads)
            part = x if whole else x[:, :, heads]  # clip token head d_head
            step = torch.einsum("cthd,hde->cthe", part, p) + c
            part = part + step if keep else step
            if whole:
                return part
            x = x.clone()
            x[:, :, heads] = part
            return x

        return change

    def _edit_out(self, units: list[int]) -> Callable[[Tensor], Tensor]:
        maps = [self.map(i) for i in units]
        keep = self._given.keep_mean

        def change(x: Tensor) -> Tensor:
            for p, c in maps:
                step = x @ p + c
                x = x + step if keep else step
            return x

        return change

    def output(self, encoded: Encoded) -> Encoded:
        """The gains of the unit `output`, which act on the pooled latent."""
        if "output" not in self._names:
            return encoded
        change = self._edit_out([self._names.index("output")])
        return replace(encoded, latent=change(encoded.latent))

    def gains(self) -> Gains:
        """The present λ as data."""
        values = {
            unit: value.detach().cpu().numpy().astype(np.float64)
            for unit, value in zip(self._names, self.values, strict=True)
        }
        means = {self._names[int(i)]: float(v.detach()) for i, v in self.means.items()}
        return replace(self._given, gains=values, means=means)
