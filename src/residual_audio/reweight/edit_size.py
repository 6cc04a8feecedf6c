"""How large an edit is, and how alike two edits are.

The edit of a unit is the operator E = R' diag(λ − 1) Φ on its contribution, and (λ₀ − 1) μ: readers
R are the axes Φ themselves where those are orthonormal. Weighed by what goes through it, as the
mean over clips of the product of what two edits do to a latent, it says what happens to latents;
unweighed, what happened to the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypedDict

import numpy as np

from residual_audio.reweight.uncorrelated import centre_of, readers_of
from residual_audio.types import FloatArray, Gains, Spectrum


class EditSize(TypedDict):
    """How many numbers moved, and how far."""

    gains: int
    moved: int
    """Gains other than exactly 1, those of means among them."""
    units: int
    units_moved: int
    energy: float
    """√(Σ σ² (λ − 1)² / Σ σ²), the change of the contributions as a share of their spread."""
    distance: float
    """√ mean (λ − 1)²"""
    negative: float
    """Share of all gains below 0."""


def edit_size(gains: Gains) -> EditSize:
    """An edit in a few numbers."""
    changes = {unit: np.asarray(v, np.float64) - 1.0 for unit, v in gains.gains.items()}
    means = {unit: gains.means.get(unit, 1.0) - 1.0 for unit in changes}
    every = np.concatenate([*changes.values(), np.array([means[u] for u in gains.means])])
    sigma = np.concatenate([_spread(gains, unit) for unit in changes])
    inside = np.concatenate(list(changes.values()))
    return {
        "gains": len(every),
        "moved": int((every != 0).sum()),
        "units": len(changes),
        "units_moved": sum(bool(c.any() or means[unit]) for unit, c in changes.items()),
        "energy": float(np.sqrt((sigma**2 * inside**2).sum() / max((sigma**2).sum(), 1e-300))),
        "distance": float(np.sqrt((every**2).mean())),
        "negative": float((every < -1).mean()),
    }


def likeness(one: Gains, other: Gains, *, weighed: bool = True) -> float:
    """The cosine of two edits as operators; NaN where one of them changes nothing."""
    length = _inner(one, one, weighed) * _inner(other, other, weighed)
    return _inner(one, other, weighed) / length**0.5 if length > 0 else float("nan")


def stability(edits: Sequence[Gains], *, weighed: bool = True) -> float:
    """The mean cosine of all pairs of edits, fold against fold."""
    found = [likeness(a, b, weighed=weighed) for a, b in combinations(edits, 2)]
    return float(np.mean(found)) if found else float("nan")


def times_chosen(edits: Sequence[Gains]) -> dict[str, int]:
    """Unit → in how many of the edits it moved."""
    units = dict.fromkeys(unit for gains in edits for unit in gains.gains)
    return {unit: sum(_moves(gains, unit) for gains in edits) for unit in units}


def _moves(gains: Gains, unit: str) -> bool:
    values = np.asarray(gains.gains.get(unit, np.ones(0)))
    return bool((values != 1).any() or gains.means.get(unit, 1.0) != 1.0)


def _spread(gains: Gains, unit: str) -> FloatArray:
    """σ along each axis; a coarse gain has none and counts as 1."""
    values = np.asarray(gains.spectra[unit].eigenvalues, np.float64)
    return np.sqrt(values.clip(0)) if len(values) else np.ones(1)


def _inner(one: Gains, other: Gains, weighed: bool) -> float:
    total = 0.0
    for unit in one.gains:
        if unit not in other.gains or not (_moves(one, unit) and _moves(other, unit)):
            continue
        changes = [np.asarray(gains.gains[unit], np.float64) - 1.0 for gains in (one, other)]
        total += _operators(one.spectra[unit], other.spectra[unit], changes, weighed)
        means = [gains.means.get(unit, 1.0) - 1.0 for gains in (one, other)]
        along = np.asarray(one.spectra[unit].mean) @ np.asarray(other.spectra[unit].mean)
        total += means[0] * means[1] * (float(along) if weighed else 1.0)
        if weighed:
            total += means[0] * _of_mean(other, one, unit) + means[1] * _of_mean(one, other, unit)
    return total


def _operators(
    one: Spectrum, other: Spectrum, changes: Sequence[FloatArray], weighed: bool
) -> float:
    """tr(E₁' C E₂), C = 1 or the second moment of what the operators read, as both know it."""
    a, b = (np.asarray(s.basis, np.float64) for s in (one, other))
    if not len(a) or not len(b):  # coarse: one gain of everything
        return float(changes[0].sum() * changes[1].sum())
    r, s = (np.asarray(readers_of(x), np.float64) for x in (one, other))
    seen = r @ s.T
    if weighed:
        # C r = (mean of (x r)²) φ: components are uncorrelated, or nearly so
        u, v = (np.asarray(x.eigenvalues).clip(0) for x in (one, other))
        u, v = u / np.square(a).sum(1), v / np.square(b).sum(1)
        seen = 0.5 * (u[:, None] * (a @ s.T) + (r @ b.T) * v)
    return float(changes[0] @ (seen * (a @ b.T)) @ changes[1])


def _of_mean(gains: Gains, other: Gains, unit: str) -> float:
    """What an operator makes of the mean, along the other's: 0 where it reads centred vectors."""
    spectrum = gains.spectra[unit]
    mean = np.asarray(spectrum.mean, np.float64) - centre_of(spectrum)
    if not len(spectrum.basis) or not mean.any():
        return 0.0
    change = np.asarray(gains.gains[unit], np.float64) - 1.0
    made = (change * (np.asarray(readers_of(spectrum)) @ mean)) @ np.asarray(spectrum.basis)
    return float(made @ np.asarray(other.spectra[unit].mean))
