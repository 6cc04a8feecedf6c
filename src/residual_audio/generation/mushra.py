"""Listening tests by ITU-R BS.1534: screened, summarised and tested, listeners as the units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.generation.ratings import Ratings
from residual_audio.metrics import listening as metrics
from residual_audio.types import Result, Score

REFERENCES = ("reference", "ref", "hidden_reference", "hiddenref", "hidden reference")
RULE = "ITU-R BS.1534-3: hidden reference below 90% of the scale in more than 15% of the trials"


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
    anchor_names = set(anchors) if anchors else {s for s in ratings.systems if _is_anchor(s)}
    unknown = sorted(anchor_names - set(ratings.systems))
    if unknown:
        raise InputError(f"no stimulus '{unknown[0]}'; there are: {', '.join(ratings.systems)}")
    used, screening = _screen(ratings, hidden, screen)
    summaries = metrics.summarise(used.values, seed=seed, n_resamples=n_resamples)
    tested = [k for k, s in enumerate(ratings.systems) if s != hidden and s not in anchor_names]
    values = used.values[:, :, tested]
    friedman = metrics.friedman(values)
    pairs = [
        asdict(p) | {"a": ratings.systems[tested[p.a]], "b": ratings.systems[tested[p.b]]}
        for p in metrics.pairwise(values)
    ]
    scores = []
    for system, one in zip(ratings.systems, summaries, strict=True):
        n = one.n_ratings
        scores.append(Score(f"mean/{system}", one.mean, one.mean_low, one.mean_high, n))
        scores.append(Score(f"median/{system}", one.median, one.median_low, one.median_high, n))
    agreement = metrics.agreement(used.values)
    result = Result(
        task="mushra",
        model="listeners",
        dataset=name,
        split="screened" if screening["applied"] else "all",
        scores=tuple(scores),
        per_item=_items(used),
        details={
            "systems": list(ratings.systems),
            "reference": hidden,
            "anchors": sorted(anchor_names),
            "scale": ratings.scale,
            "scale_guessed": ratings.scale_guessed,
            "n_listeners": len(used.values),
            "n_trials": len(ratings.trials),
            "n_ratings": int(np.isfinite(used.values).sum()),
            "n_repeated": ratings.n_repeated,
            "screening": screening,
            "friedman": asdict(friedman),
            "pairwise": pairs,
            "agreement": asdict(agreement),
            "warnings": _warnings(used, hidden, tested),
        },
        provenance=provenance.collect(
            seed=seed, intervals=f"95%, {n_resamples} bootstrap resamples of listeners"
        ),
    )  # fmt: skip
    return result, used


def _reference(ratings: Ratings, given: str | None) -> str | None:
    if given is not None:
        if given not in ratings.systems:
            raise InputError(f"no stimulus '{given}'; there are: {', '.join(ratings.systems)}")
        return given
    return next((s for s in ratings.systems if s.lower() in REFERENCES), None)


def _is_anchor(system: str) -> bool:
    return system.lower().startswith(("anchor", "lowanchor", "midanchor", "lp35", "lp70"))


def _screen(ratings: Ratings, hidden: str | None, apply: bool) -> tuple[Ratings, dict[str, Any]]:
    record: dict[str, Any] = {
        "rule": RULE,
        "possible": hidden is not None,
        "applied": False,
        "n_flagged": 0,
    }
    if hidden is None:
        return ratings, record
    low, high = ratings.scale
    place = ratings.systems.index(hidden)
    out, share = metrics.screen(ratings.values, place, low=low, high=high)
    record |= {
        "n_flagged": int(out.sum()),
        "share_of_trials": dict(zip(ratings.listeners, share.tolist(), strict=True)),
        "flagged": [ratings.listeners[i] for i in np.flatnonzero(out)],
    }
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
