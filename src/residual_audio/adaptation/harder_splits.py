"""The main method on every division of the clips that the data allow, official folds first.

Clips of one source resemble each other in more than a group says: what is learned from notes of the
same player is worth less on ways of playing that were not heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division
from residual_audio.adaptation.methods.registry import MAIN_KEY, find_entries, offered
from residual_audio.adaptation.other_splits import divide
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.verdicts import Verdict, verdicts
from residual_audio.progress import SILENT, Progress

BESIDE = ("ridge", "linear-probe-latent")
"""What the main method is seen beside: they cost little."""


class OnSplit(TypedDict):
    """A method on one division of the clips."""

    split: str
    method: str
    key: str
    top1: float
    gain: float
    gain_low: float
    gain_high: float
    units_moved: float
    stability: float
    capped: int
    n: int


def on_all_splits(
    problem: Problem,
    official: tuple[str, Sequence[Verdict]],
    others: Sequence[str],
    n_folds: int = 5,
    seeds: Sequence[int] = (0,),
    progress: Progress = SILENT,
) -> list[OnSplit]:
    """Rows of the main method, of the model as it is and of two baselines.

    `official`: how the folds of the main table were made, and its rows, which are not made again.
    """
    keys = (MAIN_KEY, *BESIDE)
    wanted = {entry.key for entry in find_entries(keys, offered(problem), skip_missing=True)}
    source, rows = official
    out = list(_rows(source, [row for row in rows if row["key"] in wanted]))
    for split in others:
        divided, folds = divide(problem, split, n_folds, seeds[0])
        entries = find_entries(keys, offered(divided), skip_missing=True)
        # a class may have been played in one way only
        how = Division(allow_missing=True)
        found = compare(divided, folds, entries, seeds=seeds, how=how, progress=progress)
        out += _rows(folds.source, verdicts(divided, folds, found, seed=seeds[0]))
    return out


def _rows(split: str, rows: Sequence[Verdict]) -> Iterator[OnSplit]:
    for row in rows:
        if "failed" in row:
            continue
        yield {
            "split": split,
            "method": row["method"],
            "key": row["key"],
            "top1": row["top1"],
            "gain": row["gain"],
            "gain_low": row["gain_low"],
            "gain_high": row["gain_high"],
            "units_moved": row.get("units_moved", float("nan")),
            "stability": row.get("stability", float("nan")),
            "capped": row["capped"],
            "n": row["n"],
        }
