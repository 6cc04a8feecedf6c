"""Edits that turn: of every unit a symmetric matrix in the coordinates of its contribution.

    y = x + x R' S Φ + x₀ μ

The eigenvectors of S are components and its eigenvalues λ − 1, so an edit is an ordinary set of
gains in other coordinates of the same subspaces; S that is diagonal is one in those given. Readers
R are the axes Φ, and read x − μ, where those are orthonormal. Numbers are
counted by what goes through their unit: z = √b S with b the root of the unit's energy, half-way
between counting all numbers alike and counting by the change of the latent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from residual_audio.models.linear import product as matrix_product
from residual_audio.reweight.terms import DirectTerms
from residual_audio.reweight.uncorrelated import turned
from residual_audio.types import FloatArray, Spectrum

Shape = Literal["symmetric", "diagonal", "scalar"]
"""Of the matrices: axes that turn, gains along the axes that are given, or one gain a unit."""
Value = Callable[[Tensor], Tensor]
"""What is made small, as a function of latents [clip, D]."""


@dataclass(frozen=True)
class TurnedEdit:
    """Of every unit a symmetric matrix, and of its mean a number; all 0: nothing changes."""

    turns: Tensor
    """[unit, width, width]"""
    means: Tensor
    """[unit], or none"""

    def plus(self, other: TurnedEdit, times: float = 1.0) -> TurnedEdit:
        return TurnedEdit(self.turns + times * other.turns, self.means + times * other.means)

    def dot(self, other: TurnedEdit) -> float:
        return float((self.turns * other.turns).sum()) + float((self.means * other.means).sum())

    def steepest(self) -> float:
        """The largest number in it."""
        found = [float(part.abs().max()) for part in (self.turns, self.means) if part.numel()]
        return max(found, default=0.0)

    def norms(self) -> Tensor:
        """[unit]"""
        found = self.turns.square().sum((1, 2))
        return (found + self.means.square() if len(self.means) else found).sqrt()

    def at(self, units: Tensor) -> TurnedEdit:
        """Of these units only."""
        return TurnedEdit(self.turns[units], self.means[units] if len(self.means) else self.means)

    def among(self, units: Tensor, n_units: int) -> TurnedEdit:
        """The same among more units, the others left alone; `units` says where these stand."""
        turns = self.turns.new_zeros(n_units, *self.turns.shape[1:])
        means = self.means.new_zeros(n_units if len(self.means) else 0)
        turns[units] = self.turns
        if len(means):
            means[units] = self.means
        return TurnedEdit(turns, means)


@dataclass(frozen=True)
class Roots:
    """√b of every unit and of its mean."""

    units: Tensor
    means: Tensor
    sizes: Tensor
    """[unit]: components of each."""

    @classmethod
    def of(cls, terms: DirectTerms) -> Roots:
        owner = torch.from_numpy(np.repeat(np.arange(len(terms.sizes)), terms.sizes))
        # the mean has a gain of its own, and decides nothing here
        through = terms.amplitudes.var(0, correction=0) * terms.axes.square().sum(1)
        energy = through.new_zeros(len(terms.sizes)).index_add(0, owner, through)
        means = _fourth_root(terms.means.square().sum(1))
        return cls(_fourth_root(energy), means, torch.tensor(terms.sizes))

    def at(self, units: Tensor) -> Roots:
        means = self.means[units] if len(self.means) else self.means
        return Roots(self.units[units], means, self.sizes[units])

    def plain(self, edit: TurnedEdit) -> TurnedEdit:
        """S and x₀ of z."""
        return TurnedEdit(edit.turns / self.units[:, None, None], edit.means / self.means)


def _fourth_root(energy: Tensor) -> Tensor:
    return energy.clamp(min=1e-3 * float(energy.max()) if len(energy) else 0.0) ** 0.25


class TurnedClips:
    """Clips under an edit z: their latents, and slopes of what is made small."""

    def __init__(
        self, terms: DirectTerms, value: Value, roots: Roots, shape: Shape = "symmetric"
    ) -> None:
        self._value, self.roots, self._shape = value, roots, shape
        self.units, self.width = len(terms.sizes), max(terms.sizes)
        along = terms.amplitudes.split(terms.sizes, 1)
        scaled = [own / root for own, root in zip(along, roots.units, strict=True)]
        self._groups = _of_one_size(roots.sizes)
        self._amplitudes = [torch.stack([scaled[u] for u in g.tolist()]) for g in self._groups]
        axes = terms.axes.split(terms.sizes)
        self._lay(torch.cat([axes[u] for group in self._groups for u in group.tolist()]))
        self._base = terms.here
        self._means = terms.means / roots.means[:, None] if len(terms.means) else terms.means
        self._whole: Tensor | None = None
        """[unit, clip × D]: contributions of few units as they are, where one gain scales each."""

    def _lay(self, axes: Tensor) -> None:
        """[component, D], both ways about: products there and back read rows."""
        self._axes, self._across = axes, axes.T.contiguous()

    def _by_group(self, components: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """What is told of all components, group by group."""
        return components.split([len(g) * own.shape[2] for g, own in self._by_size], dim)

    @property
    def _by_size(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Numbers [unit] and amplitudes [unit, clip, size] of the units of each size: as wide as
        they are, where an edit pads all units to the widest."""
        return zip(self._groups, self._amplitudes, strict=True)

    @torch.no_grad()
    def through(self, product: nn.Linear) -> TurnedClips:
        """The same seen behind a product that latents go through first, for a value that is a
        function of what comes out of it: no step has to take it again."""
        found = copy(self)
        found._base = product(self._base)
        found._lay(matrix_product(self._axes, product.weight))
        found._means = self._means @ product.weight.T
        found._whole = None
        return found

    def valued(self, value: Value) -> TurnedClips:
        """The same with something else to make small."""
        found = copy(self)
        found._value = value
        return found

    def only(self, units: Tensor) -> TurnedClips:
        """The same with these units alone, the others at 1."""
        found = copy(self)
        found.units, found.roots = len(units), self.roots.at(units)
        place = torch.full((self.units,), -1)
        place[units] = torch.arange(len(units))
        found._groups, found._amplitudes, axes = [], [], []
        for (group, amplitudes), own in zip(self._by_size, self._by_group(self._axes), strict=True):
            taken = (place[group] >= 0).nonzero()[:, 0]
            if len(taken):
                found._groups.append(place[group[taken]])
                found._amplitudes.append(amplitudes[taken])
                axes.append(own.unflatten(0, (len(group), -1))[taken])
        found._lay(torch.cat([own.flatten(0, 1) for own in axes]))
        found._means = self._means[units] if len(self._means) else self._means
        if self._shape == "scalar":
            pairs = zip(found._amplitudes, axes, strict=True)
            whole = torch.cat([(along @ own).flatten(1) for along, own in pairs])
            found._whole = whole[torch.cat(found._groups).argsort()]
        return found

    def nothing(self) -> TurnedEdit:
        """The edit that changes nothing."""
        turns = self._base.new_zeros(self.units, self.width, self.width)
        return TurnedEdit(turns, self._base.new_zeros(len(self._means)))

    def moved(self, edit: TurnedEdit) -> Tensor:
        """What an edit adds to the latents, [clip, D]: linear in it."""
        if self._whole is not None:
            moved = (edit.turns[:, 0, 0] @ self._whole).view_as(self._base)
        else:
            along = [
                (own @ edit.turns[group, : own.shape[2], : own.shape[2]]).transpose(0, 1).flatten(1)
                for group, own in self._by_size
            ]
            moved = matrix_product(torch.cat(along, 1), self._across)
        return moved + edit.means @ self._means if len(self._means) else moved

    def value(self, moved: Tensor) -> float:
        with torch.no_grad():
            return float(self._value(self._base + moved))

    def slope(self, moved: Tensor) -> tuple[float, TurnedEdit]:
        """Value and slope where an edit has moved the latents so far."""
        latent = (self._base + moved).requires_grad_()
        with torch.enable_grad():
            value = self._value(latent)
            value.backward()  # type: ignore[no-untyped-call]
        assert latent.grad is not None
        means = self._means @ latent.grad.sum(0)
        if self._whole is not None:
            trace = self._whole @ latent.grad.flatten()
            sizes = self.roots.sizes[:, None]
            same = (trace[:, None] / sizes) * (torch.arange(self.width) < sizes)
            return value.item(), TurnedEdit(torch.diag_embed(same), means)
        along = self._by_group(matrix_product(latent.grad, self._axes), 1)
        slope = self._base.new_zeros(self.units, self.width, self.width)
        for (group, own), pulled in zip(self._by_size, along, strict=True):
            size = own.shape[2]
            pulled = pulled.unflatten(1, (len(group), size)).transpose(0, 1)
            slope[group, :size, :size] = _shaped(own.transpose(1, 2) @ pulled, self._shape)
        return value.item(), TurnedEdit(slope, means)


def _of_one_size(sizes: Tensor) -> list[Tensor]:
    """Numbers of the units that have as many components."""
    return [(sizes == size).nonzero()[:, 0] for size in sizes.unique().tolist()]


def _shaped(matrices: Tensor, shape: Shape) -> Tensor:
    """The nearest matrices of a shape."""
    if shape == "symmetric":
        return 0.5 * (matrices + matrices.transpose(1, 2))
    along = matrices.diagonal(dim1=1, dim2=2)
    return torch.diag_embed(along if shape == "diagonal" else along.mean(1, True).expand_as(along))


def along_axes(terms: DirectTerms, edit: TurnedEdit) -> tuple[DirectTerms, FloatArray]:
    """The terms along the axes of an edit (S and x₀, not z), and λ − 1 in their order.

    A unit whose matrix is diagonal keeps its axes, and one that is left alone all of its numbers.
    """
    spectra, amplitudes, axes = dict[str, Spectrum](terms.spectra), [], []
    changes, start = list[FloatArray](), 0
    for unit, size, turn in zip(terms.units, terms.sizes, edit.turns.double().numpy(), strict=True):
        own = slice(start, start + size)
        start += size
        turn = turn[:size, :size]
        diagonal = np.diagonal(turn)
        if not (turn - np.diag(diagonal)).any():
            changes.append(diagonal.copy())
            amplitudes.append(terms.amplitudes[:, own])
            axes.append(terms.axes[own])
            continue
        change, mix = np.linalg.eigh(turn)
        # eigenvectors [old axis, new axis], the largest gain first
        mix = mix[:, ::-1].T
        spectra[unit] = turned(terms.spectra[unit], mix)
        changes.append(change[::-1])
        rotation = torch.from_numpy(mix.copy()).to(terms.axes)
        amplitudes.append(terms.amplitudes[:, own] @ rotation.T)
        axes.append(rotation @ terms.axes[own])
    along = replace(
        terms, amplitudes=torch.cat(amplitudes, 1), axes=torch.cat(axes), spectra=spectra
    )
    return along, np.concatenate([*changes, edit.means.double().numpy()])
