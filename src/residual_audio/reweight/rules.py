"""Gains by rule, without training.

The first four are the proposals of the published dimension analysis of CLAP; block numbers count
over all stages. The last two weigh components by what they are worth for a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
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

    def width(self, name: str) -> int:
        """Dimensions of a unit, whatever the model: rules count by shares of it."""
        return parse_unit(name, self.sites).width or len(self.spectra[name].mean)

    def count(self, name: str, share: float) -> int:
        """So many components are this share of a unit's width; at least one."""
        if not 0 < share <= 1:
            raise InputError(f"a share of {share:g} is not between 0 and 1")
        return max(1, round(share * self.width(name)))

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


def prune_early(ground: Ground, share: float = 1 / 8, blocks: Sequence[int] = (0, 1)) -> Gains:
    """Only the first `share` of the components of each unit in the first blocks (3 of 24)."""
    return ground.gains(
        lambda unit, s: (
            _first(s, ground.count(unit, share)) if ground.block(unit) in blocks else None
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
    first: float = 4 / 24,
    last: float = 15 / 24,
    factor: float = 1.5,
    stages: Sequence[int] = (2, 3),
) -> Gains:
    """`factor` for components between two shares of a unit's width (the 5th to 15th of 24), in the
    given stages."""

    def rule(unit: str, s: Spectrum) -> FloatArray | None:
        if parse_unit(unit, ground.sites).stage not in stages:
            return None
        place = (np.arange(len(s.basis)) + 0.5) / ground.width(unit)
        return np.where((place > first) & (place < last), factor, 1.0)

    return ground.gains(rule)


def retain(ground: Ground, share: float = 2 / 3) -> Gains:
    """Only the first `share` of the components of every unit (16 of 24)."""
    return ground.gains(lambda unit, s: _first(s, ground.count(unit, share)))


def retain_first(ground: Ground, k: int) -> Gains:
    """Only the first k components of every unit."""
    return ground.gains(lambda unit, s: _first(s, k))


def _first(spectrum: Spectrum, k: int) -> FloatArray:
    return (np.arange(len(spectrum.basis)) < k).astype(np.float64)


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
    "window": component_window,
    "retain": retain,
    "fisher": fisher_weighted,
    "text-aligned": text_aligned,
}


def apply_rule(name: str, ground: Ground, numbers: Mapping[str, float]) -> Gains:
    """A rule by name with its numbers (`share`, `factor`, `ratio` …)."""
    if name not in STRATEGIES:
        raise InputError(f"'{name}' is no rule: choose among {', '.join(STRATEGIES)}")
    rule = STRATEGIES[name]
    known = [
        key
        for key, parameter in signature(rule).parameters.items()
        if parameter.annotation in ("float", float)
    ]
    for key in numbers:
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"the rule '{name}' has no number '{key}': {has}")
    return rule(ground, **numbers)
