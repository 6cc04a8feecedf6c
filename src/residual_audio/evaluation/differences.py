"""Is one model better than another on the same items? Paired, by group."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from residual_audio.metrics.uncertainty import fdr, paired_difference
from residual_audio.types import Result

Hits = dict[Hashable, tuple[float, str]]
"""Item → (success, group)."""


@dataclass(frozen=True)
class ModelDifference:
    """`model` − `against` in one score: its 95% interval and the two-sided p of flipped signs."""

    task: str
    dataset: str
    split: str
    score: str
    model: str
    against: str
    value: float
    low: float
    high: float
    p: float
    q: float
    """p among all differences that are shown together (false discovery rate)."""
    n: int
    """Items that both models have answered."""


def paired_differences(
    results: Sequence[Result], *, seed: int = 0, n_resamples: int = 2000
) -> list[ModelDifference]:
    """Every model against the first one on the same task, data set and split."""
    found = []
    for key in dict.fromkeys((r.task, r.dataset, r.split) for r in results):
        first, *others = [r for r in results if (r.task, r.dataset, r.split) == key]
        base = _hits(first)
        for other in others:
            for score, hits in _hits(other).items():
                against = base.get(score, {})
                shared = [item for item in hits if item in against]
                if len(shared) < 2:
                    continue
                d = paired_difference(
                    np.array([hits[item][0] for item in shared]),
                    np.array([against[item][0] for item in shared]),
                    groups=[hits[item][1] for item in shared],
                    seed=seed,
                    n_resamples=n_resamples,
                )
                names = (*key, score, other.model, first.model)
                found.append(ModelDifference(*names, d.value, d.low, d.high, d.p, math.nan, d.n))
    rates = fdr([row.p for row in found])
    return [replace(row, q=float(q)) for row, q in zip(found, rates, strict=True)]


def _hits(result: Result) -> dict[str, Hits]:
    """Main score → what each item counts in it."""
    items = result.per_item or {}
    if result.task == "zero-shot":
        rows = zip(items["id"], items["rank"], items["group"], strict=True)
        return {"top1": {item: (float(rank <= 1), group) for item, rank, group in rows}}
    if result.task == "retrieval":
        hits: dict[str, Hits] = {}
        names = ("direction", "id", "caption", "rank", "group")
        for way, item, caption, rank, group in zip(*(items[n] for n in names), strict=True):
            hits.setdefault(f"{way}_r1", {})[(item, caption)] = (float(rank <= 1), group)
        return hits
    if result.task == "compa":
        rows = zip(items["id"], items["h"], items["group"], strict=True)
        return {"h": {item: (float(passed), group) for item, passed, group in rows}}
    return {}
