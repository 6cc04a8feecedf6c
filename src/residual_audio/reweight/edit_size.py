"""How large an edit is, and how alike two edits are.

The edit of a unit is the operator E = R' diag(λ − 1) Φ on its contribution, and (λ₀ − 1) μ: readers
R are the axes Φ themselves where those are orthonormal. Weighed by what goes through it, as the
mean over clips of the product of what two edits do to a latent, it says what happens to latents;
unweighed, what happened to the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypedDict

import numpy as np

from residual_audio.reweight.uncorrelated import (
    Uncorrelated,
    centre_of,
    energy_of,
    moment_of,
    readers_of,
)
from residual_audio.types import FloatArray, Gains


class EditSize(TypedDict):
    """How many numbers moved, and how far."""

    gains: int
    moved: int
    """Gains other than exactly 1, those of means among them."""
    units: int
    units_moved: int
    heads_moved: int
    """Those of them that are heads."""
    energy: float
    """The change of the contributions as a share of what they are: √(Σ σ² (λ − 1)² / Σ σ²) along
    principal axes."""
    distance: float
    """√ mean (λ − 1)²"""
    negative: float
    """Share of all gains below 0."""


def edit_size(gains: Gains) -> EditSize:
    """An edit in a few numbers."""
    changes = {unit: np.asarray(v, np.float64) - 1.0 for unit, v in gains.gains.items()}
    means = {unit: gains.means.get(unit, 1.0) - 1.0 for unit in changes}
    every = np.concatenate([*changes.values(), np.array([means[u] for u in gains.means])])
    done = sum(_energy(gains, unit, change) for unit, change in changes.items())
    through = sum(_energy(gains, unit, np.ones_like(change)) for unit, change in changes.items())
    moving = [unit for unit, c in changes.items() if c.any() or means[unit]]
    return {
        "gains": len(every),
        "moved": int((every != 0).sum()),
        "units": len(changes),
        "units_moved": len(moving),
        "heads_moved": sum(unit.rpartition(".")[2].startswith("h") for unit in moving),
        "energy": float(np.sqrt(max(done, 0.0) / max(through, 1e-300))),
        "distance": float(np.sqrt((every**2).mean())),
        "negative": float((every < -1).mean()),
    }


def likeness(one: Gains, other: Gains, *, weighed: bool = True) -> float:
    """The cosine of two edits as operators; NaN where one of them changes nothing."""
    return stability([one, other], weighed=weighed)


def stability(edits: Sequence[Gains], *, weighed: bool = True) -> float:
    """The mean cosine of all pairs of edits, fold against fold; NaN where one changes nothing."""
    made = [_operators(gains) for gains in edits]
    lengths = [max(_inner(own, own, weighed), 0.0) ** 0.5 for own in made]
    if len(made) < 2 or not all(lengths):
        return float("nan")
    pairs = combinations(range(len(made)), 2)
    found = [_inner(made[i], made[j], weighed) / (lengths[i] * lengths[j]) for i, j in pairs]
    return float(np.mean(found))


def times_chosen(edits: Sequence[Gains]) -> dict[str, int]:
    """Unit → in how many of the edits it moved."""
    units = dict.fromkeys(unit for gains in edits for unit in gains.gains)
    return {unit: sum(_moves(gains, unit) for gains in edits) for unit in units}


def _moves(gains: Gains, unit: str) -> bool:
    values = np.asarray(gains.gains.get(unit, np.ones(0)))
    return bool((values != 1).any() or gains.means.get(unit, 1.0) != 1.0)


def _energy(gains: Gains, unit: str, change: FloatArray) -> float:
    """What a change of the gains does to a unit; the unit of a coarse gain counts as 1."""
    spectrum = gains.spectra[unit]
    return energy_of(spectrum, change) if len(spectrum.basis) else float(change @ change)


@dataclass(frozen=True)
class _Operator:
    """What the edit of one unit does, made ready to be multiplied with others."""

    basis: FloatArray
    """[k, d]; none of a coarse gain, which is of everything."""
    readers: FloatArray
    moment: FloatArray
    """[k, k]: mean of (x r_i)(x r_j)."""
    change: FloatArray
    """[k]: λ − 1"""
    mean: FloatArray
    mean_change: float
    of_mean: FloatArray | None
    """[d]: what it makes of the mean; None where it reads centred vectors."""

    def times(self, other: _Operator, weighed: bool) -> float:
        """tr(E₁' C E₂), C = 1 or the second moment of what the operators read, as both know it."""
        if not len(self.basis) or not len(other.basis):
            return float(self.change.sum() * other.change.sum())
        along = seen = self.basis @ other.basis.T
        orthonormal = self.readers is self.basis and other.readers is other.basis
        if not orthonormal and not weighed:
            seen = self.readers @ other.readers.T
        if weighed:
            mine, its = (seen, seen)
            if not orthonormal:
                mine, its = self.basis @ other.readers.T, self.readers @ other.basis.T
            # C r_i = Σ (mean of (x r_i)(x r_j)) φ_j, of what lies within the components
            seen = 0.5 * (self.moment @ mine + its @ other.moment)
        return float(self.change @ (seen * along) @ other.change)


def _operators(gains: Gains) -> dict[str, _Operator]:
    """Of the units that move."""
    return {unit: _operator(gains, unit) for unit in gains.gains if _moves(gains, unit)}


def _operator(gains: Gains, unit: str) -> _Operator:
    spectrum = gains.spectra[unit]
    basis = np.asarray(spectrum.basis, np.float64)
    slanted = isinstance(spectrum, Uncorrelated)
    readers = np.asarray(readers_of(spectrum), np.float64) if slanted else basis
    change = np.asarray(gains.gains[unit], np.float64) - 1.0
    mean = np.asarray(spectrum.mean)
    of_mean = None
    if len(basis):
        beside = mean - centre_of(spectrum)
        of_mean = (change * (readers @ beside)) @ basis if beside.any() else None
    mean_change = gains.means.get(unit, 1.0) - 1.0
    moment = moment_of(spectrum)
    return _Operator(basis, readers, moment, change, mean, mean_change, of_mean)


def _inner(one: dict[str, _Operator], other: dict[str, _Operator], weighed: bool) -> float:
    total = 0.0
    for unit, mine in one.items():
        its = other.get(unit)
        if its is None:
            continue
        total += mine.times(its, weighed)
        along = float(mine.mean @ its.mean) if weighed else 1.0
        total += mine.mean_change * its.mean_change * along
        if weighed:
            # of both, what one makes of the mean along the other's
            for a, b in ((mine, its), (its, mine)):
                if b.of_mean is not None and a.mean_change:
                    total += a.mean_change * float(b.of_mean @ a.mean)
    return total
