"""What a comparison found: scores with their spread, and paired differences.

Differences are paired clip by clip, in intervals over whole groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from residual_audio.adaptation.comparison import Outcome
from residual_audio.adaptation.methods.linear_probe import LinearProbe
from residual_audio.adaptation.methods.registry import REFERENCE
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.sureness import Sureness, sureness
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.metrics import classification, uncertainty
from residual_audio.reweight.edit_size import edit_size, stability, times_chosen
from residual_audio.types import FloatArray, Gains


class Averages(TypedDict):
    """Means over all tested clips, and their spread over folds and seeds."""

    top1: float
    top1_fold_mean: float
    top1_fold_std: float
    top1_seed_std: float
    top5: float
    macro_f1: float
    n: int


class Verdict(Averages, Sureness, total=False):
    """A row of the table; one that failed has no numbers."""

    method: str
    kind: str
    parameters: int
    gain: float
    gain_low: float
    gain_high: float
    p: float
    q: float
    """p among all methods of the table (false discovery rate)."""
    gap_closed: float
    """The share of the way from zero-shot to the better linear probe; NaN where that way is not
    clear of 0, as a share of nothing means nothing."""
    gap_closed_low: float
    gap_closed_high: float
    seconds: float
    moved: float
    """Gains other than 1, of the mean fold."""
    units_moved: float
    heads_moved: float
    energy: float
    distance: float
    negative: float
    stability: float
    """Mean cosine of the edits of two folds, weighed by energy."""
    stability_plain: float
    always: int
    """Units that moved in every fold."""
    ever: int
    """Units that moved in at least one."""
    lost: float
    """Accuracy lost on reference clips, of the mean fold; NaN where there are none."""
    lost_error: float
    capped: int
    """Folds in which the fit stopped at a cap rather than by itself."""
    failed: str
    key: str


class PairedGap(TypedDict):
    """The paired difference in top-1 of two methods."""

    method: str
    against: str
    gain: float
    low: float
    high: float
    p: float


def verdicts(
    problem: Problem, folds: Folds, outcomes: Sequence[Outcome], *, seed: int = 0
) -> list[Verdict]:
    """One row a method: top-1, top-5, macro-F1 with spread over folds, and what it gains."""
    hits = {o.entry.key: hits_of(problem, o, 1) for o in outcomes if not o.failed}
    if REFERENCE not in hits:
        raise InputError("the comparison needs the method 'zero-shot' to compare with")
    probes = [o.entry.key for o in outcomes if isinstance(o.entry.method, LinearProbe)]
    answers = {key: np.nanmean(found, 0) for key, found in hits.items()}
    ceiling = max(
        (key for key in probes if key in hits),
        key=lambda key: float(np.nanmean(answers[key])),
        default=None,
    )
    out: list[Verdict] = []
    for outcome in outcomes:
        entry = outcome.entry
        if outcome.failed:
            row = {"method": entry.label, "kind": entry.kind, "failed": outcome.failed}
            out.append({**row, "key": entry.key})  # type: ignore[typeddict-item]
            continue
        gap = uncertainty.paired_difference(
            answers[entry.key], answers[REFERENCE], groups=problem.groups, seed=seed
        )
        summary = _summary(problem, folds, outcome)
        way = None if ceiling is None else answers[ceiling] - answers[REFERENCE]
        share = gap_closed(answers[entry.key] - answers[REFERENCE], way, problem.groups, seed)
        out.append(
            {
                "method": entry.label,
                "kind": entry.kind,
                "parameters": outcome.n_parameters,
                **summary,
                "gain": gap.value,
                "gain_low": gap.low,
                "gain_high": gap.high,
                "p": gap.p,
                "q": math.nan,
                "gap_closed": share[0],
                "gap_closed_low": share[1],
                "gap_closed_high": share[2],
                "seconds": float(np.mean(outcome.seconds)),
                "capped": sum(not notes.get("converged", True) for notes in outcome.notes.values()),
                **edit_over_folds(list(outcome.gains.values())),
                **_cost_over_folds(outcome),
                **sureness(problem, outcome, seed),
                "key": entry.key,
            }
        )
    tested = [verdict for verdict in out if "p" in verdict and verdict["key"] != REFERENCE]
    for verdict, q in zip(tested, uncertainty.fdr([v["p"] for v in tested]), strict=True):
        verdict["q"] = float(q)
    return out


def gap_closed(
    gain: FloatArray, way: FloatArray | None, groups: Sequence[str], seed: int = 0
) -> tuple[float, float, float]:
    """Mean gain over mean way, with its 95% interval: the same groups are drawn for both.

    NaN where the interval of the way itself holds 0.
    """
    nothing = (math.nan, math.nan, math.nan)
    if way is None:
        return nothing
    known = np.isfinite(gain) & np.isfinite(way)
    gain, way = gain[known], way[known]
    own = [group for group, k in zip(groups, known, strict=True) if k]
    clear = uncertainty.paired_difference(way, np.zeros_like(way), groups=own, seed=seed)
    if not clear.low > 0:
        return nothing

    def ratio(counts: FloatArray) -> FloatArray:
        below = counts @ way
        return np.where(below > 0, (counts @ gain) / np.where(below > 0, below, 1.0), np.nan)

    low, high = uncertainty.interval(ratio, len(gain), groups=own, seed=seed)
    return float(gain.sum() / way.sum()), float(low), float(high)


class EditOverFolds(TypedDict, total=False):
    """Sizes of the edits of all folds, on the average, and how alike they are."""

    moved: float
    units_moved: float
    heads_moved: float
    energy: float
    distance: float
    negative: float
    stability: float
    stability_plain: float
    always: int
    ever: int


def edit_over_folds(edits: Sequence[Gains]) -> EditOverFolds:
    """What moved, how far, and how alike; nothing for methods without gains."""
    if not edits:
        return {}
    sizes = [edit_size(gains) for gains in edits]
    times = times_chosen(edits)
    return {
        "moved": float(np.mean([size["moved"] for size in sizes])),
        "units_moved": float(np.mean([size["units_moved"] for size in sizes])),
        "heads_moved": float(np.mean([size["heads_moved"] for size in sizes])),
        "energy": float(np.mean([size["energy"] for size in sizes])),
        "distance": float(np.mean([size["distance"] for size in sizes])),
        "negative": float(np.mean([size["negative"] for size in sizes])),
        "stability": stability(edits),
        "stability_plain": stability(edits, weighed=False),
        "always": sum(n == len(edits) for n in times.values()),
        "ever": sum(n > 0 for n in times.values()),
    }


class CostOverFolds(TypedDict, total=False):
    """Accuracy lost on reference clips, mean over folds and references."""

    lost: float
    lost_error: float


def _cost_over_folds(outcome: Outcome) -> CostOverFolds:
    costs = [cost for found in outcome.costs.values() for cost in found]
    if not costs:
        return {}
    return {
        "lost": float(np.mean([cost.lost for cost in costs])),
        "lost_error": float(np.mean([cost.error for cost in costs])),
    }


class CostRow(TypedDict):
    """One method, one fold, one reference."""

    method: str
    fold: str
    reference: str
    before: float
    after: float
    lost: float
    error: float
    n: int


def cost_rows(outcomes: Sequence[Outcome]) -> list[CostRow]:
    """Accuracy on reference clips with the gains of every fold; none without references."""
    return [
        {
            "method": outcome.entry.label,
            "fold": fold,
            "reference": cost.name,
            "before": cost.before,
            "after": cost.after,
            "lost": cost.lost,
            "error": cost.error,
            "n": cost.n,
        }
        for outcome in outcomes
        for fold, costs in outcome.costs.items()
        for cost in costs
    ]


def against(
    problem: Problem, outcomes: Sequence[Outcome], one: str, other: str, seed: int = 0
) -> PairedGap:
    """The paired difference in top-1 of two methods of the same comparison, by their keys."""
    by_key = {outcome.entry.key: outcome for outcome in outcomes if not outcome.failed}
    for key in (one, other):
        if key not in by_key:
            raise InputError(f"there is no method '{key}' in this comparison")
    a, b = (np.nanmean(hits_of(problem, by_key[key], 1), 0) for key in (one, other))
    gap = uncertainty.paired_difference(a, b, groups=problem.groups, seed=seed)
    return {
        "method": by_key[one].entry.label,
        "against": by_key[other].entry.label,
        "gain": gap.value,
        "low": gap.low,
        "high": gap.high,
        "p": gap.p,
    }


def hits_of(problem: Problem, outcome: Outcome, k: int) -> FloatArray:
    """[seed, clip]: 1 where the true class is among the first k, NaN where not tested."""
    out = np.full(outcome.scores.shape[:2], np.nan)
    for s, scores in enumerate(outcome.scores):
        known = ~np.isnan(scores[:, 0])
        rank = classification.true_rank(scores[known], problem.codes[known])
        out[s, known] = rank <= k
    return out


def _summary(problem: Problem, folds: Folds, outcome: Outcome) -> Averages:
    """Each fold's number is a mean over seeds."""
    top1, top5 = hits_of(problem, outcome, 1), hits_of(problem, outcome, 5)
    by_fold = [
        float(np.nanmean(top1[:, folds.assignment == f]))
        for f in range(len(folds))
        if not np.isnan(top1[:, folds.assignment == f]).all()
    ]
    f1 = []
    for scores in outcome.scores:
        known = ~np.isnan(scores[:, 0])
        found = classification.macro_f1(
            problem.codes[known], scores[known].argmax(1), len(problem.classes)
        )
        f1.append(float(found[0]))
    return {
        "top1": float(np.nanmean(top1)),
        "top1_fold_mean": float(np.mean(by_fold)),
        "top1_fold_std": float(np.std(by_fold, ddof=1)) if len(by_fold) > 1 else math.nan,
        "top1_seed_std": float(np.nanmean(top1, 1).std(ddof=1)) if len(top1) > 1 else math.nan,
        "top5": float(np.nanmean(top5)) if len(problem.classes) > 5 else math.nan,
        "macro_f1": float(np.mean(f1)),
        "n": int((~np.isnan(top1[0])).sum()),
    }
