"""Is one model better than another on the same items? Paired, by group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from residual_audio.metrics.uncertainty import paired_difference
from residual_audio.types import Result


def paired_differences(
    results: Sequence[Result], *, seed: int = 0, n_resamples: int = 2000
) -> list[dict[str, Any]]:
    """Every model against the first one on the same task, data set and split."""
    found = []
    for key in dict.fromkeys((r.task, r.dataset, r.split) for r in results):
        first, *others = [r for r in results if (r.task, r.dataset, r.split) == key]
        base = _hits(first)
        for other in others:
            for score, values in _hits(other).items():
                shared = [item for item in values if item in base.get(score, {})]
                if len(shared) < 2:
                    continue
                a = np.array([values[item][0] for item in shared])
                b = np.array([base[score][item][0] for item in shared])
                groups = [values[item][1] for item in shared]
                difference = paired_difference(
                    a, b, groups=groups, seed=seed, n_resamples=n_resamples
                )
                found.append(
                    {
                        "task": key[0],
                        "dataset": key[1],
                        "split": key[2],
                        "score": score,
                        "model": other.model,
                        "against": first.model,
                        **asdict(difference),
                    }
                )
    return found


def _hits(result: Result) -> dict[str, dict[Any, tuple[float, Any]]]:
    """Main score → item → (success, group)."""
    items = result.per_item or {}
    if result.task == "zero-shot":
        rows = zip(items["id"], items["rank"], items["group"], strict=True)
        return {"top1": {item: (float(rank <= 1), group) for item, rank, group in rows}}
    if result.task == "retrieval":
        hits: dict[str, dict[Any, tuple[float, Any]]] = {}
        names = ("direction", "id", "caption", "rank", "group")
        for way, item, caption, rank, group in zip(*(items[n] for n in names), strict=True):
            hits.setdefault(f"{way}_r1", {})[(item, caption)] = (float(rank <= 1), group)
        return hits
    if result.task == "compa":
        rows = zip(items["id"], items["h"], items["group"], strict=True)
        return {"h": {item: (float(passed), group) for item, passed, group in rows}}
    return {}
