"""Adaptation judged honestly: every method on the same grouped folds, in one table.

What a method chooses (axes, gains, epochs, strengths) it chooses on the training part of a fold;
the test part is scored once. Differences to zero-shot are paired, in intervals over whole groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from residual_audio.adaptation import baselines
from residual_audio.adaptation.methods import (
    ClosedForm,
    Fitted,
    Method,
    Residual,
    Rule,
    prompt_ensemble,
    zero_shot,
)
from residual_audio.adaptation.problem import Problem, Split, splits_of
from residual_audio.data.splits import Folds
from residual_audio.engine.cores import on_single_cores
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.metrics import classification, uncertainty
from residual_audio.reweight.rules import STRATEGIES
from residual_audio.reweight.spectra import Components
from residual_audio.types import FloatArray, Gains

REFERENCE = "zero-shot"
STAGE_SETS = ((0,), (1,), (2,), (3,), (2, 3), (0, 1, 2, 3))


@dataclass
class Row:
    """One method over all folds and seeds."""

    method: Method
    scores: FloatArray
    """[seed, clip, class] on the fold in which a clip was tested; NaN where it was not."""
    n_parameters: int = 0
    seconds: list[float] = field(default_factory=list)
    """To fit, a fold and seed."""
    gains: dict[str, Gains] = field(default_factory=dict)
    """By fold, of the first seed."""
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: str | None = None


def direct_methods(problem: Problem) -> list[Method]:
    """Everything that is fitted from a store, in the order of the table."""
    n_stages = 1 + max(site.stage for site in problem.sites)
    every = tuple(range(n_stages))
    sets = [s for s in STAGE_SETS if max(s) < n_stages]
    found = [Method(REFERENCE, "reference", zero_shot)]
    if problem.ensemble is not None:
        found.append(Method("zero-shot, prompt ensemble", "reference", prompt_ensemble))
    if problem.contributions is not None:
        found += [
            Method(f"ResiDual heads {name_of(s)}", "residual", Residual("head", s)) for s in sets
        ]
        found += [
            Method("ResiDual block attention", "residual", Residual("attention", every)),
            Method("ResiDual stages", "residual", Residual("stage", every)),
            Method("ResiDual MLPs", "residual", Residual("mlp", every)),
            Method("ResiDual heads, EVR 0.9", "residual", Residual(components=Components(evr=0.9))),
            Method("ResiDual heads, mean dropped", "residual", Residual(keep_mean=False)),
            Method("ResiDual heads, mean fixed", "residual", Residual(mean_gains=False)),
            Method("ResiDual heads, closed form", "residual", ClosedForm()),
            Method(
                "coarse, one gain a head", "control", Residual(components=Components(coarse=True))
            ),
            Method("rotated axes", "control", Residual(axes="rotated")),
            Method("random axes", "control", Residual(axes="random")),
            Method("latent-PCA gains", "control", Residual("output")),
        ]
        found += [Method(f"rule: {name}", "rule", Rule(name)) for name in STRATEGIES]
    return [
        *found,
        Method("output-PCA gains", "control", baselines.output_gains),
        Method("all but the top", "baseline", baselines.all_but_the_top),
        Method("whitening", "baseline", baselines.whitening),
        Method("ridge to texts", "baseline", baselines.ridge_to_texts),
        Method("linear probe, joint", "baseline", baselines.linear_probe("joint")),
        Method("linear probe, latent", "baseline", baselines.linear_probe("latent")),
    ]


def name_of(stages: Sequence[int]) -> str:
    """`{2,3}`, and `{0–3}` for a run of more than two."""
    if len(stages) > 2 and list(stages) == list(range(stages[0], stages[-1] + 1)):
        return f"{{{stages[0]}–{stages[-1]}}}"
    return "{" + ",".join(map(str, stages)) + "}"


def compare(
    problem: Problem,
    folds: Folds,
    methods: Sequence[Method],
    *,
    seeds: Sequence[int] = (0,),
    shots: int | None = None,
    only: Callable[[str], bool] | None = None,
    allow_missing: bool = False,
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Fit and score every method on every fold and seed.

    A method that cannot be fitted becomes a row that says why; the others go on.
    """
    n, c = len(problem), len(problem.classes)
    rows = [Row(m, np.full((len(seeds), n, c), np.nan)) for m in methods]
    for i, seed in enumerate(seeds):
        for split in splits_of(
            problem, folds, seed=seed, shots=shots, only=only, allow_missing=allow_missing
        ):
            done = _fit_all(problem, split, seed, [r for r in rows if not r.failed], progress)
            for row, found in done:
                row.scores[i, split.test] = found.scores
                row.n_parameters = max(row.n_parameters, found.n_parameters)
                row.seconds.append(found.seconds)
                if i == 0:
                    row.notes[split.name] = found.notes
                    if found.gains is not None:
                        row.gains[split.name] = found.gains
            problem.forget()
    return rows


def _fit_all(
    problem: Problem,
    split: Split,
    seed: int,
    rows: Sequence[Row],
    progress: Callable[[str], None] | None,
) -> list[tuple[Row, Fitted]]:
    """Every method on one split: those that need no encoder side by side, one a core."""
    found: dict[int, Fitted] = {}

    def fit(index: int) -> None:
        row = rows[index]
        if progress is not None:
            progress(f"{row.method.name}, fold {split.name}")
        try:
            with torch.enable_grad():
                found[index] = row.method.fit(problem, split, seed)
        except ResidualAudioError as error:
            row.failed = f"fold {split.name}: {error}"

    alone = [i for i, row in enumerate(rows) if row.method.runs_encoder]
    small = [i for i in range(len(rows)) if i not in set(alone)]

    def some(jobs: Iterator[int]) -> None:
        for job in jobs:
            fit(small[job])

    with threadpool_limits(1, user_api="blas"):  # numpy would start threads in every thread
        on_single_cores(some, len(small))
    for index in alone:
        fit(index)
    return [(rows[index], found[index]) for index in sorted(found)]


def table(
    problem: Problem, folds: Folds, rows: Sequence[Row], *, seed: int = 0
) -> list[dict[str, Any]]:
    """One dict a method: top-1, top-5, macro-F1 with spread over folds, and what it gains.

    `gap_closed` is the share of the way from zero-shot to the better linear probe.
    """
    usable = [row for row in rows if not row.failed]
    reference = next((row for row in usable if row.method.name == REFERENCE), None)
    if reference is None:
        raise InputError("the comparison needs the method 'zero-shot' to compare with")
    hits = {row.method.name: _hits(problem, row, 1) for row in usable}
    probes = [v for name, v in hits.items() if name.startswith("linear probe")]
    base = float(np.nanmean(hits[REFERENCE]))
    ceiling = max((float(np.nanmean(v)) for v in probes), default=math.nan)
    out = []
    for row in rows:
        record: dict[str, Any] = {"method": row.method.name, "kind": row.method.kind}
        if row.failed:
            out.append(record | {"failed": row.failed})
            continue
        own = hits[row.method.name]
        record |= {"parameters": row.n_parameters} | _summary(problem, folds, row)
        gap = uncertainty.paired_difference(
            np.nanmean(own, 0), np.nanmean(hits[REFERENCE], 0), groups=problem.groups, seed=seed
        )
        record |= {
            "gain": gap.value,
            "gain_low": gap.low,
            "gain_high": gap.high,
            "p": gap.p,
            "gap_closed": (record["top1"] - base) / (ceiling - base)
            if ceiling > base
            else math.nan,
            "seconds": float(np.mean(row.seconds)),
        }
        out.append(record)
    return out


def against(
    problem: Problem, rows: Iterable[Row], one: str, other: str, seed: int = 0
) -> dict[str, Any]:
    """The paired difference in top-1 of two methods of the same comparison."""
    by_name: Mapping[str, Row] = {row.method.name: row for row in rows}
    for name in (one, other):
        if name not in by_name or by_name[name].failed:
            raise InputError(f"there is no method '{name}' in this comparison")
    a, b = (np.nanmean(_hits(problem, by_name[name], 1), 0) for name in (one, other))
    gap = uncertainty.paired_difference(a, b, groups=problem.groups, seed=seed)
    return {
        "method": one,
        "against": other,
        "gain": gap.value,
        "low": gap.low,
        "high": gap.high,
        "p": gap.p,
    }


def _hits(problem: Problem, row: Row, k: int) -> FloatArray:
    """[seed, clip]: 1 where the true class is among the first k, NaN where not tested."""
    out = np.full(row.scores.shape[:2], np.nan)
    for s, scores in enumerate(row.scores):
        known = ~np.isnan(scores[:, 0])
        rank = classification.true_rank(scores[known], problem.codes[known])
        out[s, known] = rank <= k
    return out


def _summary(problem: Problem, folds: Folds, row: Row) -> dict[str, Any]:
    """Means over all tested clips, and mean ± std over folds (each averaged over seeds)."""
    top1, top5 = _hits(problem, row, 1), _hits(problem, row, 5)
    by_fold = [
        float(np.nanmean(top1[:, folds.assignment == f]))
        for f in range(len(folds))
        if not np.isnan(top1[:, folds.assignment == f]).all()
    ]
    f1 = []
    for scores in row.scores:
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
