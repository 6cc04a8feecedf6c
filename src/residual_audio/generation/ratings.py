"""Ratings of listening tests from webMUSHRA result files and wide tables.

Nothing that could name a listener is kept: listeners become L1, L2 … in order of appearance, and
ages, comments, addresses and whatever else a form asked for are passed over.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.metrics import listening as metrics

Array = npt.NDArray[Any]

LISTENER = (
    "session_uuid", "uuid", "participant", "participant_id", "listener", "listener_id", "subject",
    "subject_id", "user", "user_id", "rater", "assessor", "worker_id",
)  # fmt: skip
TRIAL = ("trial_id", "trial", "item", "page", "track", "excerpt", "question", "stimulus_id")
SYSTEM = ("rating_stimulus", "stimulus", "system", "condition", "method", "model")
SCORE = ("rating_score", "score", "rating", "value")
TEST = ("session_test_id", "test_id")
MOST_SYSTEMS, MOST_CELLS = 100, 10_000_000
PERSONAL = (
    "age", "gender", "sex", "name", "email", "mail", "comment", "rating_comment", "rating_time",
    "time", "country", "ip", "experience", "headphones", "date", "timestamp",
)  # fmt: skip


@dataclass(frozen=True)
class Ratings:
    """[listener, trial, system]; listeners by number only."""

    values: Array
    listeners: tuple[str, ...]
    trials: tuple[str, ...]
    systems: tuple[str, ...]
    scale: tuple[float, float]
    scale_guessed: bool
    n_repeated: int
    """Ratings given more than once by one listener to one stimulus: their mean is used."""

    def without_listeners(self, out: Array) -> Ratings:
        stay = tuple(name for name, gone in zip(self.listeners, out, strict=True) if not gone)
        return replace(self, values=self.values[~out], listeners=stay)


def read_ratings(path: Path, scale: tuple[float, float] | None = None) -> Ratings:
    """A long table (one rating a row, as webMUSHRA writes) or a wide one (one column a system)."""
    header, rows = _read_rows(path)
    lowered = {name.lower(): name for name in header}
    score, system = _find(lowered, SCORE), _find(lowered, SYSTEM)
    if score and system:
        listener, trial = _find(lowered, LISTENER), _find(lowered, TRIAL)
        if listener is None:
            raise InputError(
                f"'{path}' has no column for the listener ({', '.join(LISTENER[:4])} …); it has: "
                f"{', '.join(header)}"
            )
        given = _long(path, rows, listener, trial, system, score, _find(lowered, TEST))
    else:
        given = _wide(path, header, rows, lowered)
    if not given:
        raise InputError(f"'{path}' holds no rating")
    return _table(path, given, scale)


Given = list[tuple[str, str, str, float]]
"""Listener, trial, system, rating."""


def _read_rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Header and (line number, row); blank lines anywhere are passed over."""
    if not path.is_file():
        raise InputError(f"no file '{path}'")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"'{path}' cannot be read as text: {error}") from error
    numbered = [(i, line) for i, line in enumerate(lines, start=1) if line.strip(" \t,;")]
    if len(numbered) < 2:
        raise InputError(f"'{path}' has no row below its header")
    delimiter = max(",;\t", key=numbered[0][1].count)
    try:
        read = list(csv.reader((line for _, line in numbered), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"'{path}' is not a readable table: {error}") from error
    header = [name.strip().strip('"') for name in read[0]]
    twice = [name for i, name in enumerate(header) if name and name in header[:i]]
    if twice:
        raise InputError(f"'{path}' names the column '{twice[0]}' twice")
    body = zip((i for i, _ in numbered[1:]), read[1:], strict=False)
    return header, [
        (i, dict(zip(header, (c.strip() for c in row), strict=False))) for i, row in body
    ]


def _find(lowered: dict[str, str], names: Sequence[str]) -> str | None:
    return next((lowered[name] for name in names if name in lowered), None)


def _rating(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"line {line} of '{path}': the rating '{text}' is not a number")
    return value


def _long(
    path: Path,
    rows: list[tuple[int, dict[str, str]]],
    listener: str,
    trial: str | None,
    system: str,
    score: str,
    test: str | None,
) -> Given:
    tests = {row.get(test, "") for _, row in rows} if test else set()
    found: Given = []
    for line, row in rows:
        if not row.get(score):
            continue  # shown but not rated
        where = row.get(trial, "") if trial else ""
        if test and len(tests) > 1:
            where = f"{row.get(test, '')}/{where}"
        if not row.get(listener) or not row.get(system):
            raise InputError(f"line {line} of '{path}' has a rating without listener or stimulus")
        found.append((row[listener], where, row[system], _rating(path, line, row[score])))
    return found


def _wide(
    path: Path,
    header: list[str],
    rows: list[tuple[int, dict[str, str]]],
    lowered: dict[str, str],
) -> Given:
    listener, trial = _find(lowered, LISTENER), _find(lowered, TRIAL)
    systems = []
    for name in header:
        if name in (listener, trial) or name.lower() in (*PERSONAL, *TEST) or not name:
            continue
        if any(_is_number(row.get(name, "")) for _, row in rows):
            systems.append(name)
    if len(systems) < 2:
        raise InputError(
            f"'{path}' is neither a long table (columns like {SYSTEM[0]} and {SCORE[0]}) nor a "
            f"wide one with two or more columns of ratings; it has: {', '.join(header)}"
        )
    found: Given = []
    for number, (line, row) in enumerate(rows):
        who = row.get(listener, "") if listener else str(number)
        if listener and not who:
            raise InputError(f"line {line} of '{path}' has ratings without a listener")
        for system in systems:
            if row.get(system):
                rating = _rating(path, line, row[system])
                found.append((who, row.get(trial, "") if trial else "", system, rating))
    return found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _table(path: Path, given: Given, scale: tuple[float, float] | None) -> Ratings:
    listeners = {name: i for i, name in enumerate(dict.fromkeys(row[0] for row in given))}
    trials = {name: i for i, name in enumerate(sorted({row[1] for row in given}))}
    systems = {name: i for i, name in enumerate(sorted({row[2] for row in given}))}
    n_cells = len(listeners) * len(trials) * len(systems)
    if len(systems) > MOST_SYSTEMS or n_cells > MOST_CELLS:
        raise InputError(
            f"'{path}' has {len(systems):,} systems, {len(trials):,} trials and "
            f"{len(listeners):,} listeners: that is no listening test; at most {MOST_SYSTEMS} "
            "systems are compared, each with each"
        )
    total = np.zeros((len(listeners), len(trials), len(systems)))
    times = np.zeros_like(total)
    for who, trial, system, rating in given:
        at = listeners[who], trials[trial], systems[system]
        total[at] += rating
        times[at] += 1
    everything = np.array([row[3] for row in given])
    ends = scale or guess_scale(everything)
    if everything.min() < ends[0] or everything.max() > ends[1]:
        bad = next(row for row in given if not ends[0] <= row[3] <= ends[1])
        raise InputError(
            f"'{path}' has the rating {bad[3]:g} (trial '{bad[1]}', system '{bad[2]}'), outside "
            f"the scale {ends[0]:g} to {ends[1]:g}: give the scale of the test with --scale"
        )
    with np.errstate(invalid="ignore"):
        values = total / np.where(times > 0, times, np.nan)
    metrics.validate(values, *ends)
    numbered = tuple(f"L{i + 1}" for i in range(len(listeners)))
    return Ratings(
        values, numbered, tuple(trials), tuple(systems), ends, scale is None, int((times > 1).sum())
    )


def guess_scale(values: Array) -> tuple[float, float]:
    """1–5 or 1–10 or 0–10 where whole numbers stay within, else the 0–100 of MUSHRA."""
    whole = bool((values == np.round(values)).all())
    low, high = float(values.min()), float(values.max())
    for ends in ((1.0, 5.0), (1.0, 10.0), (0.0, 10.0)):
        if whole and ends[0] <= low and high <= ends[1]:
            return ends
    return 0.0, 100.0
