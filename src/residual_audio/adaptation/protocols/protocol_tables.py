"""Tables and a result of a published protocol, both variants side by side."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from residual_audio import provenance
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.protocols.protocol_recipe import PublishedProtocol
from residual_audio.adaptation.protocols.protocol_run import (
    BASELINE,
    BEST,
    CHOSEN,
    ProtocolColumn,
    ProtocolFound,
)
from residual_audio.metrics.uncertainty import mean_interval, paired_difference
from residual_audio.table import Table, from_rows
from residual_audio.types import HeardBefore, Result, Score

LABELS = {CHOSEN: "chosen on held-out groups", BEST: "best on the tested folds"}


class ColumnRow(TypedDict):
    """One column of the published table."""

    variant: str
    column: str
    parameters: int
    accuracy: float
    fold_mean: float
    fold_std: float
    low: float
    high: float
    gain: float
    """Over the baseline, paired."""
    gain_low: float
    gain_high: float
    n: int
    chance: float
    capped: int
    chosen: str
    key: str


def column_rows(problem: Problem, found: ProtocolFound, seed: int = 0) -> list[ColumnRow]:
    """Accuracy of every column, over folds and over clips, and its paired gain."""
    baselines = {one.variant: one.hits for one in found.columns if one.name == BASELINE}
    return [_row(problem, found, one, baselines[one.variant], seed) for one in found.columns]


def _row(
    problem: Problem, found: ProtocolFound, one: ProtocolColumn, baseline: np.ndarray, seed: int
) -> ColumnRow:
    folds, groups = found.folds[one.variant], problem.groups
    by_fold = [float(one.hits[folds.test(fold)].mean()) for fold in range(len(folds))]
    low, high = mean_interval(one.hits, groups=groups, seed=seed)
    gap = paired_difference(one.hits, baseline, groups=groups, seed=seed)
    return ColumnRow(
        variant=one.variant,
        column=LABELS.get(one.name, one.name),
        parameters=one.parameters,
        accuracy=float(one.hits.mean()),
        fold_mean=float(np.mean(by_fold)),
        fold_std=float(np.std(by_fold, ddof=1)),
        low=low,
        high=high,
        gain=gap.value,
        gain_low=gap.low,
        gain_high=gap.high,
        n=len(one.hits),
        chance=1 / len(problem.classes),
        capped=one.capped,
        chosen="; ".join(one.chosen),
        key=one.name,
    )


def protocol_tables(
    problem: Problem, protocol: PublishedProtocol, found: ProtocolFound, seed: int = 0
) -> list[Table]:
    """The columns with what differs between the variants, and every cell for the box plot."""
    about = [f"{name}: folds {folds.source}" for name, folds in found.folds.items()]
    notes = (
        f"{len(problem)} clips, {len(problem.classes)} classes, {len(set(problem.groups))} groups; "
        + "; ".join(about),
        "accuracy over all clips, each where it was tested, 95% interval over groups; fold_mean ± "
        "fold_std as published; gain over the baseline, paired",
        *protocol.differences,
    )
    name = f"protocol_{protocol.name}"
    title = f"The protocol '{protocol.name}', as published and corrected"
    return [
        from_rows(name, column_rows(problem, found, seed), title, notes),
        from_rows(f"{name}_folds", found.cells, "Accuracy of every fold and set of stages"),
    ]


def protocol_result(
    problem: Problem,
    protocol: PublishedProtocol,
    found: ProtocolFound,
    heard: HeardBefore | None,
    seed: int = 0,
) -> Result:
    """Everything the tables hold, as one file."""
    rows = column_rows(problem, found, seed)
    scores = []
    for row in rows:
        name = f"{row['variant']}: {row['column']}"
        values = (row["accuracy"], row["low"], row["high"], row["n"], row["chance"])
        scores.append(Score(f"top1 {name}", *values))
        if row["key"] != BASELINE:
            gap = (row["gain"], row["gain_low"], row["gain_high"], row["n"])
            scores.append(Score(f"gain {name}", *gap))
    return Result(
        task=f"protocol-{protocol.name}",
        model=problem.about["model"]["name"],
        dataset=problem.about["dataset"]["name"],
        split=f"{len(problem)}-clips",
        scores=tuple(scores),
        details={
            "table": rows,
            "cells": found.cells,
            "differences": list(protocol.differences),
            "recipes": [repr(recipe) for recipe in protocol.recipes()],
            "heard_before": heard,
        },
        provenance={**provenance.collect(seed=seed), **problem.about},
    )
