"""Gains by rule, without training.

The first four are the proposals of the published dimension analysis of CLAP; block numbers count
over all stages. The last two weigh components by what they are worth for a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from residual_audio.errors import InputError
from residual_audio.metrics.separability import fisher
from residual_audio.metrics.spectra import shares
from residual_audio.reweight.gains import identity_gains
from residual_audio.types import FloatArray, Gains, Site, Spectrum, parse_unit


@dataclass(frozen=True)
class Ground:
    """What rules may look at: spectra and, for the two task-aware ones, training clips or texts."""

    spectra: Mapping[str, Spectrum]
    sites: Sequence[Site]
    coordinates: Callable[[str], FloatArray] | None = None
    """unit → [training clip, component]"""
    codes: FloatArray | None = None
    """[training clip], class numbers."""
    joint_axes: Callable[[str], FloatArray] | None = None
    """unit → [component, joint]: where a step along each component leads."""
    texts: FloatArray | None = None
    """[class, joint]"""
    about: Mapping[str, Any] = field(default_factory=dict)

    def block(self, name: str) -> int | None:
        """Number of the block of a head or site; None for stages and the output."""
        unit = parse_unit(name, self.sites)
        return None if unit.kind in ("stage", "output") else unit.block

    def gains(self, rule: Callable[[str, Spectrum], FloatArray | None]) -> Gains:
        """Identity, but for the units where the rule gives gains."""
        start = identity_gains(self.spectra, **self.about)
        found = {unit: rule(unit, s) for unit, s in self.spectra.items()}
        return Gains(
            {
                u: start.gains[u] if g is None else np.asarray(g, np.float64)
                for u, g in found.items()
            },
            start.spectra,
            keep_mean=start.keep_mean,
            path=start.path,
            fitted_on=start.fitted_on,
        )


def prune_early(ground: Ground, keep: int = 3, blocks: Sequence[int] = (0, 1)) -> Gains:
    """Only the first `keep` components of each unit in the first blocks."""
    return ground.gains(
        lambda unit, s: (
            (np.arange(len(s.basis)) < keep).astype(np.float64)
            if ground.block(unit) in blocks
            else None
        )
    )


def amplify_minor(
    ground: Ground, factor: float = 1.5, blocks: Sequence[int] = (4, 5, 6, 7)
) -> Gains:
    """`factor` for the components beyond the first half and within 99% of the variance."""

    def rule(unit: str, s: Spectrum) -> FloatArray | None:
        if ground.block(unit) not in blocks:
            return None
        before = np.cumsum(shares(s.eigenvalues)) - shares(s.eigenvalues)
        return np.where((before >= 0.5) & (before < 0.99), factor, 1.0)

    return ground.gains(rule)


def suppress_degenerate(
    ground: Ground, ratio: float = 0.05, blocks: Sequence[int] = (10, 11)
) -> Gains:
    """0 for components whose variance is below `ratio` of the first one's."""
    return ground.gains(
        lambda unit, s: (
            (s.eigenvalues >= ratio * s.eigenvalues[0]).astype(np.float64)
            if ground.block(unit) in blocks
            else None
        )
    )


def component_window(
    ground: Ground,
    first: int = 5,
    last: int = 15,
    factor: float = 1.5,
    stages: Sequence[int] = (2, 3),
) -> Gains:
    """`factor` for components `first` to `last` (counted from 1) in the given stages."""

    def rule(unit: str, s: Spectrum) -> FloatArray | None:
        if parse_unit(unit, ground.sites).stage not in stages:
            return None
        number = np.arange(1, len(s.basis) + 1)
        return np.where((number >= first) & (number <= last), factor, 1.0)

    return ground.gains(rule)


def retain(ground: Ground, k: int = 16) -> Gains:
    """Only the first k components of every unit."""
    return ground.gains(lambda unit, s: (np.arange(len(s.basis)) < k).astype(np.float64))


def fisher_weighted(ground: Ground) -> Gains:
    """λ = 2F/(F + mean F), F = between-class over within-class variance along each component."""
    if ground.coordinates is None or ground.codes is None:
        raise InputError("Fisher-weighted gains need labelled training clips")
    codes, coordinates = ground.codes, ground.coordinates

    def worth(unit: str) -> FloatArray:
        ratio = fisher(np.asarray(coordinates(unit)).T[..., None], codes)  # component
        return np.nan_to_num(ratio, nan=0.0, posinf=1e6)

    return _by_worth(ground, worth)


def text_aligned(ground: Ground) -> Gains:
    """λ = 2a/(a + mean a), a = share of a component's joint direction in the class texts' span."""
    if ground.joint_axes is None or ground.texts is None:
        raise InputError("text-aligned gains need class texts and the way from unit to joint space")
    texts = np.asarray(ground.texts, np.float64)
    span = np.linalg.svd(texts - texts.mean(0), full_matrices=False)
    inside = span[2][span[1] > 1e-6 * span[1][0]]  # direction joint

    def worth(unit: str) -> FloatArray:
        axes = np.asarray(ground.joint_axes(unit), np.float64)  # type: ignore[misc]
        norm = np.linalg.norm(axes, axis=1)
        return np.linalg.norm(axes @ inside.T, axis=1) / np.maximum(norm, 1e-12)

    return _by_worth(ground, worth)


def _by_worth(ground: Ground, worth: Callable[[str], FloatArray]) -> Gains:
    """Bounded gains (0 to 2) that are 1 for a component of average worth."""
    found = {unit: np.asarray(worth(unit), np.float64) for unit in ground.spectra}
    mean = np.concatenate(list(found.values())).mean()
    return ground.gains(lambda unit, s: 2 * found[unit] / np.maximum(found[unit] + mean, 1e-12))


STRATEGIES: dict[str, Callable[..., Gains]] = {
    "prune-early": prune_early,
    "amplify-minor": amplify_minor,
    "suppress-degenerate": suppress_degenerate,
    "window-5-15": component_window,
    "retain-16": retain,
    "fisher": fisher_weighted,
    "text-aligned": text_aligned,
}
