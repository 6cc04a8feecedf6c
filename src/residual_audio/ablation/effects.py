"""The outcome of an ablation: every measure for every unit and clip, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.judge.answers import MEASURES
from residual_audio.metrics.bootstrap import bootstrap_mean
from residual_audio.metrics.proportions import change_interval
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class About:
    """How effects were found."""

    method: str
    mode: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Effects:
    """Measures of `judge.answers`, clip by clip."""

    units: tuple[str, ...]
    before: Mapping[str, FloatArray]
    """measure → [clip]"""
    after: Mapping[str, FloatArray]
    """measure → [unit, clip]"""
    about: About

    @property
    def method(self) -> str:
        return self.about.method

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

    def by_clip(self, owners: npt.NDArray[np.int64]) -> Effects:
        """Means over the rows of one owner each, such as the windows of a recording."""
        if len(np.unique(owners)) == len(owners):
            return self
        member = np.eye(int(owners.max()) + 1)[owners]  # row, clip
        share = member / member.sum(0)
        before = {name: values @ share for name, values in self.before.items()}
        after = {name: values @ share for name, values in self.after.items()}
        return Effects(self.units, before, after, self.about)


@dataclass(frozen=True)
class Measured:
    """Measures as they come in; a clip that was never met stays NaN."""

    before: dict[str, FloatArray]
    after: dict[str, FloatArray]

    @classmethod
    def empty(cls, measures: Sequence[str], n_units: int, n_clips: int) -> Measured:
        return cls(
            {m: np.full(n_clips, np.nan) for m in measures},
            {m: np.full((n_units, n_clips), np.nan) for m in measures},
        )

    def put_before(self, clips: Tensor, values: Mapping[str, Tensor]) -> None:
        """measure → [clip] of the model as it is."""
        for name in self.before:
            self.before[name][clips.numpy()] = values[name].detach().cpu().numpy()

    def put_after(self, units: Sequence[int], clips: Tensor, values: Mapping[str, Tensor]) -> None:
        """measure → [unit, clip] without these units."""
        for name in self.after:
            found = values[name].detach().cpu().numpy()
            self.after[name][np.ix_(np.asarray(units), clips.numpy())] = found

    def effects(self, units: Sequence[str], about: About) -> Effects:
        """Of the clips that were met; a value that is not finite is an error, not a result."""
        seen = ~np.isnan(next(iter(self.before.values())))
        if not seen.any():
            raise InputError("there is no clip to measure an ablation on")
        after = {name: values[:, seen] for name, values in self.after.items()}
        for name, values in after.items():
            if not np.isfinite(values).all():
                unit, clip = np.argwhere(~np.isfinite(values))[0]
                raise InputError(
                    f"'{name}' of clip {clip} without {units[unit]} is not finite: "
                    "the model overflows there"
                )
        before = {name: values[seen] for name, values in self.before.items()}
        return Effects(tuple(units), before, after, about)


@dataclass(frozen=True)
class Change:
    """The mean change of each measure without one unit, each with its paired 95% interval."""

    unit: str
    changes: Mapping[str, tuple[float, float, float]]
    """measure → mean, low, high"""

    def row(self) -> dict[str, str | float]:
        """Columns of a table: `d_margin`, `d_margin_low`, `d_margin_high` …"""
        found: dict[str, str | float] = {"unit": self.unit}
        for measure, (mean, low, high) in self.changes.items():
            found |= {f"d_{measure}": mean, f"d_{measure}_low": low, f"d_{measure}_high": high}
        return found


def summary(
    effects: Effects,
    *,
    groups: Sequence[str] | None = None,
    seed: int = 0,
    n_resamples: int = 1000,
) -> list[Change]:
    """The change that each unit makes.

    The same clips are drawn before and after, and for every unit, so intervals are of the
    difference: an accuracy change of two clips in a hundred shows an interval that holds 0.
    """
    found: list[dict[str, tuple[float, float, float]]] = [{} for _ in effects.units]
    for measure in (m for m in MEASURES if m in effects.after):
        delta = effects.delta(measure)
        low, high = _ends(delta.T, groups, seed, n_resamples)
        for i, mean in enumerate(delta.mean(1)):
            found[i][measure] = (float(mean), float(low[i]), float(high[i]))
    return [Change(unit, one) for unit, one in zip(effects.units, found, strict=True)]


def _ends(
    delta: FloatArray, groups: Sequence[str] | None, seed: int, n_resamples: int
) -> tuple[FloatArray, FloatArray]:
    """Ends of the interval of each column's mean; answers that were right or wrong are counted."""
    if np.isin(delta, (-1.0, 0.0, 1.0)).all():
        return change_interval(delta, groups)
    draw = np.random.default_rng(seed)
    return bootstrap_mean(delta, rng=draw, n_resamples=n_resamples, groups=groups)


@dataclass(frozen=True)
class ByClass:
    """The mean change of a measure in every class, with 95% intervals; [unit, class] each."""

    classes: tuple[str, ...]
    mean: FloatArray
    low: FloatArray
    """NaN for a class of one group, of which no spread is known."""
    high: FloatArray
    n: tuple[int, ...]
    """Clips of each class."""


def by_class(
    effects: Effects,
    labels: Sequence[str],
    measure: str = "margin",
    groups: Sequence[str] | None = None,
) -> ByClass:
    """Changes by class. Classes have few clips, so intervals are Student's t over the means of
    groups (clips, where there are none) and not a bootstrap."""
    delta = effects.delta(measure)
    if len(labels) != delta.shape[1]:
        raise InputError(f"{len(labels)} labels for {delta.shape[1]} clips")
    names, index = np.unique(np.asarray(labels), return_inverse=True)
    together = (
        np.arange(len(index)) if groups is None else np.unique(groups, return_inverse=True)[1]
    )
    mean, reach = np.empty((len(delta), len(names))), np.full((len(delta), len(names)), np.nan)
    for c in range(len(names)):
        own = np.flatnonzero(index == c)
        _, group = np.unique(together[own], return_inverse=True)
        member = np.eye(int(group.max()) + 1)[group]  # clip group
        by_group = delta[:, own] @ member / member.sum(0)
        mean[:, c] = delta[:, own].mean(1)
        if (n := by_group.shape[1]) > 1:
            reach[:, c] = stdtrit(n - 1, 0.975) * by_group.std(1, ddof=1) / np.sqrt(n)
    counts = tuple(int(n) for n in np.bincount(index))
    return ByClass(tuple(str(n) for n in names), mean, mean - reach, mean + reach, counts)
