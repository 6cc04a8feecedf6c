"""Statistics of listening tests.

Conventions: `ratings` [listener, trial, system], NaN where a stimulus was not rated. Listeners are
the independent units: they are resampled, and tests compare listener means over the trials in which
all compared systems occur, so that no system gains from having been in easier trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics import uncertainty
from residual_audio.metrics.ranks import weighted_median

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one system."""

    mean: float
    mean_low: float
    mean_high: float
    median: float
    median_low: float
    median_high: float
    n_listeners: int
    n_ratings: int


@dataclass(frozen=True, slots=True)
class Pairwise:
    """Wilcoxon signed-rank test of two systems on listener means over shared trials."""

    a: int
    b: int
    difference: float
    """Mean of a − b."""
    rank_biserial: float
    """Matched-pairs effect size, −1 to 1: (sum of positive − sum of negative ranks) / all."""
    p: float
    p_holm: float
    n: int


@dataclass(frozen=True, slots=True)
class Friedman:
    """Do any of the systems differ? On listener means over the trials that hold all systems."""

    statistic: float
    p: float
    kendall_w: float
    n_listeners: int
    n_trials: int


@dataclass(frozen=True, slots=True)
class ListenerAgreement:
    """Intraclass correlations of two-way models (Shrout & Fleiss 1979)."""

    icc2_1: float
    """Absolute agreement of one random listener."""
    icc2_k: float
    """Absolute agreement of the mean of all listeners."""
    icc3_1: float
    """Consistency of one listener: offsets between listeners do not count."""
    icc3_k: float
    n_stimuli: int
    n_listeners: int


GOOD = 0.90
"""Of the scale: the hidden reference belongs above, the mid anchor below."""
ALLOWED = 0.15
"""Share of trials in which a listener may miss that."""
EXCUSED = 0.25
"""Share of listeners with a mid anchor above `GOOD` beyond which a trial tells nothing of them."""


@dataclass(frozen=True, slots=True)
class PostScreening:
    """Listeners to leave out, and the shares of trials behind it."""

    out: Array
    """[listener] bool"""
    missed_reference: Array
    """[listener], share of trials with the hidden reference below 90% of the scale."""
    unheard_anchor: Array
    """[listener], share of trials with the mid anchor above it; NaN without one."""
    excused: Array
    """[trial] bool: left out of the rule on the mid anchor."""


def validate(ratings: Array, low: float, high: float) -> Array:
    """As float64 [listener, trial, system] within the scale, or an error that names the rating."""
    ratings = np.asarray(ratings, dtype=np.float64)
    if ratings.ndim != 3:
        raise InputError(f"ratings must be [listener, trial, system], not {ratings.shape}")
    if not high > low:
        raise InputError(f"a scale from {low:g} to {high:g} has no length")
    if np.isnan(ratings).all():
        raise InputError("there is no rating")
    outside = np.argwhere((ratings < low) | (ratings > high))
    if len(outside):
        i = tuple(outside[0])
        raise InputError(
            f"rating {ratings[i]:g} of listener {i[0]}, trial {i[1]}, system {i[2]} is outside the "
            f"scale {low:g} to {high:g} ({len(outside)} such ratings)"
        )
    return ratings


def screen(
    ratings: Array,
    reference: int,
    *,
    low: float = 0.0,
    high: float = 100.0,
    mid_anchor: int | None = None,
) -> PostScreening:
    """Post-screening by the hidden reference and the mid-range anchor.

    Meant as in ITU-R BS.1534-3, whose text was not at hand to check it against. A listener goes who
    rates the hidden reference below 90 (of 100; here 90% of the scale) in more than 15% of the
    trials, or the mid-range anchor above 90 in more than 15% of them. A trial in which more than
    25% of the listeners rate the mid anchor above 90 was hardly changed by the anchor's filter: it
    does not count in the second rule.
    """
    ratings = np.asarray(ratings, dtype=np.float64)
    limit = low + GOOD * (high - low)
    hidden = ratings[:, :, reference]
    missed = share_of_rated(hidden < limit, hidden)
    unheard = np.full(len(ratings), np.nan)
    excused = np.zeros(ratings.shape[1], dtype=bool)
    if mid_anchor is not None:
        anchor = ratings[:, :, mid_anchor]
        excused = share_of_rated((anchor > limit).T, anchor.T) > EXCUSED
        counted = np.where(excused, np.nan, anchor)
        unheard = share_of_rated(counted > limit, counted)
    return PostScreening((missed > ALLOWED) | (unheard > ALLOWED), missed, unheard, excused)


def share_of_rated(found: Array, ratings: Array) -> Array:
    """Share of each row's ratings for which `found` holds; NaN where nothing is rated."""
    rated = (~np.isnan(ratings)).sum(1)
    return np.where(rated > 0, found.sum(1) / np.maximum(rated, 1), np.nan)


def listener_means(ratings: Array) -> Array:
    """Mean over trials, [listener, system]; NaN where nothing is rated."""
    rated = (~np.isnan(ratings)).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nansum(ratings, axis=1) / np.where(rated > 0, rated, np.nan)


def summarise(ratings: Array, *, seed: int = 0, n_resamples: int = 2000) -> list[Summary]:
    """Mean and median of each system over all its ratings, listeners resampled whole."""
    found = []
    listeners = np.broadcast_to(np.arange(len(ratings))[:, None], ratings.shape[:2])
    for k in range(ratings.shape[2]):
        known = ~np.isnan(ratings[:, :, k])
        values, who = ratings[:, :, k][known], listeners[known]
        if len(values) == 0:
            nan = math.nan
            found.append(Summary(nan, nan, nan, nan, nan, nan, 0, 0))
            continue
        mean = uncertainty.mean_interval(
            values, groups=who, seed=seed, n_resamples=n_resamples, shares=False
        )
        median = uncertainty.interval(
            partial(weighted_median, values),
            len(values),
            groups=who,
            seed=seed,
            n_resamples=n_resamples,
        )
        found.append(
            Summary(
                float(values.mean()), *mean,
                float(np.median(values)), float(median[0]), float(median[1]),
                len(np.unique(who)), len(values),
            )
        )  # fmt: skip
    return found


def _occurs(ratings: Array) -> Array:
    """True where anybody rated the system in the trial: [trial, system]."""
    return np.any(~np.isnan(ratings), axis=0, keepdims=True)[0]


def friedman(ratings: Array) -> Friedman:
    """Over the trials that hold every system; NaN with fewer than 3 systems or 2 listeners."""
    trials = np.flatnonzero(_occurs(ratings).all(1))
    means = listener_means(ratings[:, trials])
    means = means[~np.isnan(means).any(1)]
    n, k = means.shape
    if k < 3 or n < 2 or len(trials) == 0 or np.ptp(means, axis=1).max() == 0:
        return Friedman(math.nan, math.nan, math.nan, n if len(trials) else 0, len(trials))
    statistic, p = stats.friedmanchisquare(*means.T)
    return Friedman(float(statistic), float(p), float(statistic / (n * (k - 1))), n, len(trials))


def pairwise(ratings: Array) -> list[Pairwise]:
    """Wilcoxon tests of all pairs, with Holm's correction over the pairs."""
    tests: list[tuple[int, int, float, float, float, int]] = []
    occurs = _occurs(ratings)
    for a, b in combinations(range(ratings.shape[2]), 2):
        trials = np.flatnonzero(occurs[:, a] & occurs[:, b])
        # a listener who skipped one of the two in a trial compares nothing there
        both = ratings[:, trials][:, :, [a, b]]
        both = np.where(np.isnan(both).any(2, keepdims=True), np.nan, both)
        means = listener_means(both) if len(trials) else np.full((len(ratings), 2), np.nan)
        gap = (means[:, 0] - means[:, 1])[~np.isnan(means).any(1)]
        tests.append((a, b, *_wilcoxon(gap), len(gap)))
    adjusted = uncertainty.holm([t[4] for t in tests])
    return [
        Pairwise(a, b, gap, effect, p, float(holm), n)
        for (a, b, gap, effect, p, n), holm in zip(tests, adjusted, strict=True)
    ]


def _wilcoxon(gap: Array) -> tuple[float, float, float]:
    """Mean, rank-biserial effect and p; equal ratings throughout give p = 1."""
    if len(gap) < 2:
        return (float(gap.mean()) if len(gap) else math.nan), math.nan, math.nan
    moved = gap[gap != 0]
    if len(moved) == 0:
        return 0.0, 0.0, 1.0
    ranks = stats.rankdata(np.abs(moved))
    effect = float((ranks * np.sign(moved)).sum() / ranks.sum())
    return float(gap.mean()), effect, float(stats.wilcoxon(moved).pvalue)


def agreement(ratings: Array) -> ListenerAgreement:
    """ICC over the stimuli (trial × system) that every listener rated."""
    table = ratings.reshape(len(ratings), -1).T  # stimulus, listener
    return intraclass_correlation(table[~np.isnan(table).any(1)])


def intraclass_correlation(table: Array) -> ListenerAgreement:
    """Of a complete table [stimulus, listener], from its two-way analysis of variance."""
    n, k = table.shape
    if n < 2 or k < 2 or np.ptp(table) == 0:
        return ListenerAgreement(math.nan, math.nan, math.nan, math.nan, n, k)
    grand = table.mean()
    rows = k * ((table.mean(1) - grand) ** 2).sum() / (n - 1)
    columns = n * ((table.mean(0) - grand) ** 2).sum() / (k - 1)
    rest = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + grand
    error = (rest**2).sum() / ((n - 1) * (k - 1))

    def ratio(over: float, under: float) -> float:
        return float(over / under) if under > 0 else math.nan

    return ListenerAgreement(
        ratio(rows - error, rows + (k - 1) * error + k * (columns - error) / n),
        ratio(rows - error, rows + (columns - error) / n),
        ratio(rows - error, rows + (k - 1) * error),
        ratio(rows - error, rows),
        n,
        k,
    )
