"""A study of patching: every way asked for, sets, and time, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np

from residual_audio.errors import InputError
from residual_audio.models.token_times import Range
from residual_audio.patching.exchanges import Exchanges
from residual_audio.patching.interchange import ExchangeWay, interchange
from residual_audio.patching.outcomes import Interchanged, agreement, effects_table, pairs_table
from residual_audio.patching.sets import SetSearch, halves, members, set_curve
from residual_audio.patching.targets import Target, parse_targets
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import Score

TIME_UNITS = ("s*.b0.stream",)
"""Where time is looked at unless something else is asked for: what enters each stage."""


@dataclass(frozen=True)
class PatchStudy:
    """What is exchanged, and how."""

    units: Sequence[str] = ("head",)
    ways: Sequence[ExchangeWay] = (ExchangeWay(),)
    windows: int = 0
    """Time windows of equal length, each exchanged by itself."""
    time_units: Sequence[str] = TIME_UNITS
    sets: SetSearch | None = None
    seed: int = 0


@dataclass(frozen=True)
class PatchFound:
    """Tables, and what they were made from."""

    tables: tuple[Table, ...]
    runs: tuple[Interchanged, ...]
    """One a way, in the order asked for."""

    def scores(self, seed: int = 0) -> tuple[Score, ...]:
        """Of the first way: each unit's effect, with its interval; an idle unit has 0."""
        table = effects_table(self.runs[0], "scores", seed)
        return tuple(
            Score(r["unit"], r["effect"], r["effect_low"], r["effect_high"], r["n"], 0.0)
            for r in table.rows()
        )


def way_name(way: ExchangeWay) -> str:
    """`exact`, `attribution` or `direct`."""
    return "direct" if way.path == "direct" else way.method


def patch_study(
    given: Exchanges,
    study: PatchStudy,
    *,
    keep: Path | None = None,
    progress: Progress = SILENT,
) -> PatchFound:
    """Every table; with `keep`, finished pairs are kept there and not done again."""
    names = [way_name(way) for way in study.ways]
    _check(given, study, names)
    runs = tuple(
        interchange(given, list(study.units), way, keep=keep, progress=progress)
        for way in study.ways
    )
    tables = [
        effects_table(run, f"patching_units_{name}", study.seed)
        for name, run in zip(names, runs, strict=True)
    ]
    tables.append(pairs_table(runs[0], "patching_pairs"))
    if len(runs) > 1:
        tables.append(_agreements(names, runs, study.seed))
    exact = replace(study.ways[0], between=None)
    if study.windows:
        tables.append(_over_time(given, study, exact, keep, progress))
    if study.sets is not None:
        tables.append(set_curve(given, list(study.units), study.ways[0], study.sets, progress))
    return PatchFound(tuple(tables), runs)


def _check(given: Exchanges, study: PatchStudy, names: Sequence[str]) -> None:
    """What cannot be answered is said before anything is run."""
    if len(set(names)) < len(names):
        raise InputError(f"a way was asked for twice: {', '.join(names)}")
    if study.windows:
        _windows(given, study)
    if study.sets is not None:
        halves(given, study.sets.seed)
        members(list(study.units), given)


def _agreements(names: Sequence[str], runs: Sequence[Interchanged], seed: int) -> Table:
    rows = []
    for (a, first), (b, second) in combinations(zip(names, runs, strict=True), 2):
        same = agreement(first, second, seed)
        rows.append(
            {"way": a, "other": b, "spearman": same.value, "p_permutation": same.p_permutation,
             "n_units": same.n}
        )  # fmt: skip
    return from_rows("patching_agreement", rows, "Rank correlation of effects over units")


def _windows(given: Exchanges, study: PatchStudy) -> list[Target]:
    """Every unit that is looked at over time, at each window."""
    durations = {given.durations_s[item.clean] for item in given.items}
    if len(durations) > 1:
        raise InputError("clips of different lengths have no common time windows: use long center")
    edges = np.linspace(0, durations.pop(), study.windows + 1)
    ranges: list[Range] = [(float(a), float(b)) for a, b in pairwise(edges)]
    return [
        target.at(between)
        for target in parse_targets(study.time_units, given.model.encoder.sites)
        for between in ranges
    ]


def _over_time(
    given: Exchanges, study: PatchStudy, way: ExchangeWay, keep: Path | None, progress: Progress
) -> Table:
    found = interchange(given, _windows(given, study), way, keep=keep, progress=progress)
    return effects_table(found, "patching_time", study.seed)
