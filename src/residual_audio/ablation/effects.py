"""The outcome of an ablation: every measure for every unit and clip, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES
from residual_audio.metrics.bootstrap import bootstrap_mean
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class Effects:
    """Measures of `ablation.judge`, clip by clip."""

    units: tuple[str, ...]
    before: Mapping[str, FloatArray]
    """measure → [clip]"""
    after: Mapping[str, FloatArray]
    """measure → [unit, clip]"""
    method: str
    mode: str
    seconds: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def delta(self, measure: str) -> FloatArray:
        """after − before, [unit, clip]; `correct` and `margin` fall where the unit helps."""
        if measure not in self.after:
            raise InputError(
                f"no measure '{measure}' by '{self.method}'; there are: {', '.join(self.after)}"
            )
        return self.after[measure] - self.before[measure]

    def importance(self, measure: str = "margin") -> FloatArray:
        """[unit], positive where removing the unit hurts."""
        sign = 1.0 if measure in ("loss", "rank", "shift") else -1.0
        return sign * self.delta(measure).mean(1)


def collect(
    units: Sequence[str],
    before: Mapping[str, FloatArray],
    after: Mapping[str, FloatArray],
    **about: Any,
) -> Effects:
    """Effects of measured arrays; a value that is not finite is an error, not a result."""
    for name, values in after.items():
        if not np.isfinite(values).all():
            unit, clip = np.argwhere(~np.isfinite(values))[0]
            raise InputError(
                f"'{name}' of clip {clip} without {units[unit]} is not finite: "
                "the model overflows there"
            )
    return Effects(tuple(units), dict(before), dict(after), **about)


def summary(
    effects: Effects,
    *,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    n_resamples: int = 1000,
) -> list[dict[str, Any]]:
    """One row a unit: each measure's mean change with its paired 95% interval.

    The same clips are drawn before and after, and for every unit, so intervals are of the
    difference: an accuracy change of two clips in a hundred shows an interval that holds 0.
    """
    rows: list[dict[str, Any]] = [{"unit": unit} for unit in effects.units]
    for measure in (m for m in MEASURES if m in effects.after):
        delta = effects.delta(measure)
        low, high = bootstrap_mean(
            delta.T, rng=np.random.default_rng(seed), n_resamples=n_resamples, groups=groups
        )
        mean = delta.mean(1)
        for i, row in enumerate(rows):
            row[f"d_{measure}"] = float(mean[i])
            row[f"d_{measure}_low"] = float(low[i])
            row[f"d_{measure}_high"] = float(high[i])
    return rows


def by_class(
    effects: Effects, labels: Sequence[str], measure: str = "margin"
) -> tuple[tuple[str, ...], FloatArray]:
    """Classes and the mean change of a measure in each: [unit, class]."""
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    delta = effects.delta(measure)
    if len(index) != delta.shape[1]:
        raise InputError(f"{len(index)} labels for {delta.shape[1]} clips")
    member = np.eye(len(names))[index]  # clip, class
    return tuple(str(n) for n in names), (delta @ member) / member.sum(0)
