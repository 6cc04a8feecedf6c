"""Scores on the terminal, with their intervals, chance, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from residual_audio.cli.output import print_table, say

if TYPE_CHECKING:
    from residual_audio.types import Result, Score

NAMED = 5
"""Clips named on a terminal; the files name all."""


def shown(value: float | None, low: float = math.nan, high: float = math.nan) -> str:
    """`0.670 [0.62, 0.71]`, as many digits as its size asks for."""
    if value is None or math.isnan(value):
        return "–"
    digits = 1 if abs(value) >= 10 else 3 if abs(value) >= 0.01 or value == 0 else 5
    text = f"{value:.{digits}f}"
    if math.isnan(low) or math.isnan(high):
        return text
    return f"{text} [{low:.{digits - 1}f}, {high:.{digits - 1}f}]"


def print_scores(results: Sequence[Result], names: Sequence[str] | None = None) -> None:
    """One row a result, one column a score, and under each data set what chance would give."""
    columns = list(names or dict.fromkeys(s.name for r in results for s in r.scores))
    rows: list[list[str]] = []
    for place in dict.fromkeys((r.dataset, r.split) for r in results):
        here = [r for r in results if (r.dataset, r.split) == place]
        label = place[0] if place[1] == "all" else f"{place[0]} ({place[1]})"
        for result in here:
            of = _by_name(result)
            cells = [shown(s.value, s.low, s.high) if (s := of.get(n)) else "–" for n in columns]
            rows.append([result.model, label, *cells])
        first = _by_name(here[0])
        chance = [first[n].chance if n in first else None for n in columns]
        if any(c is not None for c in chance):
            rows.append(["chance", label, *(shown(c) for c in chance)])
    print_table(["model", "data", *columns], rows)


def _by_name(result: Result) -> dict[str, Score]:
    return {score.name: score for score in result.scores}


def finish(results: Sequence[Result], paths: Sequence[Path], as_json: bool, quiet: bool) -> None:
    """Say where the files are; exit 3 where clips were skipped."""
    skipped: dict[str, str] = {}
    odd: dict[str, str] = {}
    for result in results:
        skipped |= result.details.get("skipped") or {}
        odd |= result.details.get("remarks") or {}
    if not as_json:
        for result in results:
            note = (result.details.get("heard_before") or {}).get("note")
            if note:
                say(f"note: {result.model} on {result.dataset}: {note}", err=True)
        if not quiet and paths:
            say(f"written: {', '.join(str(path) for path in paths)}")
        name_clips("skipped", skipped)
        name_clips("odd", odd)
    if skipped:
        raise typer.Exit(3)


def name_clips(title: str, clips: Mapping[str, str]) -> None:
    """The first of them with what there is to say, and how many more there are."""
    for name, reason in list(clips.items())[:NAMED]:
        say(f"{title}: {name}: {reason}", err=True)
    if len(clips) > NAMED:
        say(f"{title}: {len(clips) - NAMED} more, named in the result files", err=True)
