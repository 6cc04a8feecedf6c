"""Folds by what a manifest says about clips: whole values of a column out, or blocks along it.

Notes of one library, player and articulation resemble each other: folds that share them flatter
every method. `metadata.csv#articulation` tests on values that training never saw;
`metadata.csv#pitch:blocks` cuts every class into stretches along the column, so that a tested note
has no neighbour in training but at the edges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from residual_audio.adaptation.divisions import folds_of
from residual_audio.adaptation.problem import Problem
from residual_audio.data.metadata import read_csv
from residual_audio.data.splits import Folds, grouped_folds
from residual_audio.errors import InputError
from residual_audio.types import Clip

OFFICIAL = "official"
BLOCKS = "blocks"
IDENTITIES = ("id", "filename", "file", "path")
STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


@dataclass(frozen=True)
class ColumnSplit:
    """`FILE#COLUMN`, or `FILE#COLUMN:blocks`."""

    path: Path
    column: str
    blocks: bool

    @classmethod
    def parse(cls, text: str) -> ColumnSplit:
        path, mark, column = text.rpartition("#")
        column, _, kind = column.partition(":")
        if not (mark and path and column) or kind not in ("", BLOCKS):
            raise InputError(
                f"'{text}' is no split: write official, FILE.csv#COLUMN (whole values out) or "
                f"FILE.csv#COLUMN:{BLOCKS} (stretches along it)"
            )
        return cls(Path(path), column, kind == BLOCKS)

    def values(self, clips: Sequence[Clip]) -> list[str]:
        """The column's value of every clip, found by its id; it may be empty."""
        rows = read_csv(self.path, [self.column])
        there = {name.lower(): name for name in reversed(list(rows[0]))}
        key = next((there[name] for name in IDENTITIES if name in there), None)
        if key is None:
            raise InputError(f"'{self.path}' names no clips: it needs a column {IDENTITIES[0]}")
        named = {row[key]: row[self.column].strip() for row in rows}
        lacking = [clip.id for clip in clips if clip.id not in named]
        if lacking:
            raise InputError(
                f"'{self.path}' has no {self.column} of {len(lacking)} clips, the first of them "
                f"'{lacking[0]}'"
            )
        return [named[clip.id] for clip in clips]


def divide(problem: Problem, split: str, n_folds: int = 5, seed: int = 0) -> tuple[Problem, Folds]:
    """The folds of a split, and the problem with the groups that choices must not tear either."""
    if split in ("", OFFICIAL):
        return problem, folds_of(problem.clips, n_folds, seed)
    asked = ColumnSplit.parse(split)
    values = asked.values(problem.clips)
    names = tuple(str(i + 1) for i in range(n_folds))
    if asked.blocks:
        numbers = _along(problem.clips, [_number(v, asked.column) for v in values], n_folds)
        return problem, Folds(numbers, names, f"blocks along {asked.column}, {n_folds} folds")
    clips = tuple(
        replace(clip, group=value or clip.group)
        for clip, value in zip(problem.clips, values, strict=True)
    )
    # of three dynamics there are three folds, each without one of them
    n_folds = max(2, min(n_folds, len({_group(clip) for clip in clips})))
    names = names[:n_folds]
    source = f"whole values of {asked.column} out, {n_folds} folds, seed {seed}"
    if empty := values.count(""):
        source += f"; {empty} clips without one by their group"
    return replace(problem, clips=clips), Folds(grouped_folds(clips, n_folds, seed), names, source)


def _along(clips: Sequence[Clip], numbers: Sequence[float], n_folds: int) -> np.ndarray:
    """Fold of each clip: every class cut into stretches of as many clips, no group torn."""
    out = np.zeros(len(clips), np.int64)
    for label in sorted({str(clip.label) for clip in clips}):
        mine = [i for i, clip in enumerate(clips) if str(clip.label) == label]
        place: dict[str, float] = {}
        for i in mine:
            group = _group(clips[i])
            place[group] = min(place.get(group, np.inf), numbers[i])
        order = sorted(mine, key=lambda i: (place[_group(clips[i])], _group(clips[i])))
        fold_of: dict[str, int] = {}
        for rank, i in enumerate(order):
            fold_of.setdefault(_group(clips[i]), rank * n_folds // len(order))
            out[i] = fold_of[_group(clips[i])]
    return out


def _group(clip: Clip) -> str:
    return clip.group or clip.id


def _number(text: str, column: str) -> float:
    """A number, or a note (`A#3`, `Db-1`) as its MIDI number."""
    if not text:
        return np.inf  # unknown: a stretch of its own, at the end
    note = re.fullmatch(r"([A-Ga-g])([#sb]?)(-?\d)", text)
    if note:
        step = STEPS[note[1].upper()] + {"#": 1, "s": 1, "b": -1, "": 0}[note[2]]
        return 12.0 * (int(note[3]) + 1) + step
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"'{text}' in {column} is neither a number nor a note: there are no blocks along it"
        ) from None
