"""Listening tests (MUSHRA): screened, summarised and tested, with listeners as the units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NotRequired, TypedDict

import numpy as np

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.generation.ratings import Ratings
from residual_audio.metrics import listening as metrics
from residual_audio.metrics.few_groups import FEW
from residual_audio.types import Result, Score

REFERENCES = ("reference", "ref", "hidden_reference", "hiddenref", "hidden reference")
RULE = (
    "hidden reference below 90% of the scale, or mid anchor above it, in more than 15% of the "
    "trials; trials in which over 25% of the listeners rate the mid anchor above do not count for "
    "the anchor (not checked against the text of ITU-R BS.1534-3)"
)


class Screening(TypedDict):
    """Who was found unreliable by the rule, and whether they were left out."""

    rule: str
    possible: bool
    applied: bool
    n_flagged: int
    share_of_trials: NotRequired[dict[str, float]]
    """Listener → share of trials in which the hidden reference was not heard."""
    mid_anchor: NotRequired[str | None]
    share_of_anchors: NotRequired[dict[str, float]]
    """Listener → share of trials in which the mid anchor was rated like the reference."""
    excused_trials: NotRequired[list[str]]
    """Trials that say nothing by their mid anchor: too many listeners rate it high."""
    flagged: NotRequired[list[str]]


def analyse_ratings(
    ratings: Ratings,
    *,
    reference: str | None = None,
    anchors: Sequence[str] | None = None,
    screen: bool = True,
    name: str = "listening test",
    seed: int = 0,
    n_resamples: int = 2000,
) -> tuple[Result, Ratings]:
    """Screening, summaries, tests and agreement; and the ratings that were used."""
    hidden = _reference(ratings, reference)
    low_ends = _anchors(ratings, anchors)
    used, screening = _screen(ratings, hidden, screen, low_ends)
    tested = [k for k, s in enumerate(ratings.systems) if s != hidden and s not in low_ends]
    return Result(
        task="mushra",
        model="listeners",
        dataset=name,
        split="screened" if screening["applied"] else "all",
        scores=_scores(used, seed, n_resamples),
        per_item=_items(used),
        details={
            "systems": list(ratings.systems),
            "reference": hidden,
            "anchors": low_ends,
            "scale": ratings.scale,
            "scale_guessed": ratings.scale_guessed,
            "n_listeners": len(used.values),
            "n_trials": len(ratings.trials),
            "n_ratings": int(np.isfinite(used.values).sum()),
            "n_repeated": ratings.n_repeated,
            "screening": screening,
            "friedman": asdict(metrics.friedman(used.values[:, :, tested])),
            "pairwise": _pairwise(used, tested),
            "agreement": asdict(metrics.agreement(used.values)),
            "warnings": _warnings(used, hidden, tested),
        },
        provenance=provenance.collect(
            seed=seed,
            intervals=f"95%: means by Student's t over listeners (bootstrap from {FEW} on), "
            f"medians by {n_resamples} bootstrap resamples of listeners",
        ),
    ), used


def _scores(used: Ratings, seed: int, n_resamples: int) -> tuple[Score, ...]:
    """Mean and median of every stimulus."""
    scores = []
    summaries = metrics.summarise(used.values, seed=seed, n_resamples=n_resamples)
    for system, one in zip(used.systems, summaries, strict=True):
        n = one.n_ratings
        scores.append(Score(f"mean/{system}", one.mean, one.mean_low, one.mean_high, n))
        scores.append(Score(f"median/{system}", one.median, one.median_low, one.median_high, n))
    return tuple(scores)


def _pairwise(used: Ratings, tested: Sequence[int]) -> list[dict[str, str | float]]:
    """Tests between the systems, by name."""
    names = [used.systems[k] for k in tested]
    found = metrics.pairwise(used.values[:, :, tested])
    return [asdict(pair) | {"a": names[pair.a], "b": names[pair.b]} for pair in found]


def _anchors(ratings: Ratings, given: Sequence[str] | None) -> list[str]:
    if not given:
        return sorted(s for s in ratings.systems if _is_anchor(s))
    unknown = sorted(set(given) - set(ratings.systems))
    if unknown:
        raise InputError(f"no stimulus '{unknown[0]}'; there are: {', '.join(ratings.systems)}")
    return sorted(set(given))


def _reference(ratings: Ratings, given: str | None) -> str | None:
    if given is not None:
        if given not in ratings.systems:
            raise InputError(f"no stimulus '{given}'; there are: {', '.join(ratings.systems)}")
        return given
    return next((s for s in ratings.systems if s.lower() in REFERENCES), None)


def _is_anchor(system: str) -> bool:
    return system.lower().startswith(("anchor", "lowanchor", "midanchor", "lp35", "lp70"))


def _mid_anchor(anchors: Sequence[str]) -> str | None:
    """The 7 kHz anchor among the anchors, by name; None where it cannot be told."""
    named = [a for a in anchors if any(part in a.lower() for part in ("mid", "70", "7k"))]
    return named[0] if len(named) == 1 else None


def _screen(
    ratings: Ratings, hidden: str | None, apply: bool, anchors: Sequence[str]
) -> tuple[Ratings, Screening]:
    record: Screening = {
        "rule": RULE,
        "possible": hidden is not None,
        "applied": False,
        "n_flagged": 0,
    }
    if hidden is None:
        return ratings, record
    low, high = ratings.scale
    mid = _mid_anchor(anchors)
    found = metrics.screen(
        ratings.values,
        ratings.systems.index(hidden),
        low=low,
        high=high,
        mid_anchor=None if mid is None else ratings.systems.index(mid),
    )
    out = found.out
    record["n_flagged"] = int(out.sum())
    record["share_of_trials"] = dict(
        zip(ratings.listeners, found.missed_reference.tolist(), strict=True)
    )
    record["mid_anchor"] = mid
    if mid is not None:
        record["share_of_anchors"] = dict(
            zip(ratings.listeners, found.unheard_anchor.tolist(), strict=True)
        )
        record["excused_trials"] = [ratings.trials[i] for i in np.flatnonzero(found.excused)]
    record["flagged"] = [ratings.listeners[i] for i in np.flatnonzero(out)]
    if apply and out.all():
        raise InputError(
            f"post-screening would leave out all {len(out)} listeners: look at the reference "
            f"'{hidden}' and the scale {low:g} to {high:g}, or turn screening off"
        )
    if apply:
        record["applied"] = True
        return ratings.without_listeners(out), record
    return ratings, record


def _items(ratings: Ratings) -> dict[str, list[Any]]:
    at = np.argwhere(np.isfinite(ratings.values))
    return {
        "listener": [ratings.listeners[i] for i in at[:, 0]],
        "trial": [ratings.trials[i] for i in at[:, 1]],
        "system": [ratings.systems[i] for i in at[:, 2]],
        "rating": [float(ratings.values[tuple(i)]) for i in at],
    }


def _warnings(used: Ratings, hidden: str | None, tested: list[int]) -> list[str]:
    found = []
    if hidden is None:
        found.append("there is no hidden reference: listeners cannot be screened")
    if used.scale_guessed:
        found.append(f"the scale was guessed to be {used.scale[0]:g} to {used.scale[1]:g}")
    if len(used.values) < 10:
        found.append(f"{len(used.values)} listeners are few: tests have little power")
    rated = np.isfinite(used.values[:, :, tested]).sum(0)  # trial, system
    if (rated == 0).any():
        found.append(
            "not every system occurs in every trial: tests compare systems on shared trials only, "
            "means are over all of a system's own trials"
        )
    if used.n_repeated:
        found.append(f"{used.n_repeated} stimuli were rated twice by one listener: means are used")
    return found
