"""Cells of a study: one model on one benchmark, with its scores and its probes."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.files import read_json
from residual_audio.types import Result

Array = npt.NDArray[Any]

SCORE_NAMES = re.compile(
    r"(?i)([fgh](_triplet)?|.*_one_sided|top\d+|macro_f1|m?ap(@?10)?|ece|accuracy|acc"
    r"|[ta]2[ta]_(r\d+|map10|median_rank)|r@?\d+|mrr)"
)
"""Columns that are scores unless the caller says otherwise; other numbers are probes."""
MODEL_NAMES, BENCHMARK_NAMES = ("model", "checkpoint", "name"), ("benchmark", "bench", "dataset")
NOT_PROBES = {"n", "n_items", "n_clips", "n_pairs", "n_audio", "n_text", "dim", "dimension"}
NOT_PROBES |= {"seed", "step", "epoch", "split"}


@dataclass(frozen=True)
class Cells:
    """A table: one row a (model, benchmark), columns of scores and of probes."""

    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    scores: dict[str, Array]
    probes: dict[str, Array]

    def __len__(self) -> int:
        return len(self.models)

    def only(self, probes: Sequence[str] | None) -> Cells:
        """With these probes alone; None or none for all."""
        for name in probes or ():
            if name not in self.probes:
                raise InputError(f"no probe '{name}'; there are: {', '.join(self.probes)}")
        chosen = {name: self.probes[name] for name in probes or self.probes}
        return replace(self, probes=chosen)


def cells_of_results(results: Sequence[Result]) -> Cells:
    """Join probe results with the scores of the same model, data set and split."""
    table: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for result in results:
        cell = table.setdefault((result.model, result.dataset, result.split), {})
        kind = "probes" if result.task == "probe" else "scores"
        for score in result.scores:
            cell.setdefault(kind, {})[score.name] = score.value
    whole = {key: cell for key, cell in table.items() if {"probes", "scores"} <= set(cell)}
    if not whole:
        raise InputError(
            f"of {len(results)} results, none of a probe and none of a score belong to the same "
            "model, data set and split: run `probe` and `evaluate` or `compa` on the same data"
        )
    return _cells(
        [key[0] for key in whole],
        [" ".join(part for part in key[1:] if part != "all") for key in whole],
        [cell["scores"] for cell in whole.values()],
        [cell["probes"] for cell in whole.values()],
    )


def _cells(
    models: Sequence[str],
    benchmarks: Sequence[str],
    scores: Sequence[dict[str, float]],
    probes: Sequence[dict[str, float]],
) -> Cells:
    def columns(rows: Sequence[dict[str, float]]) -> dict[str, Array]:
        names = dict.fromkeys(name for row in rows for name in row)
        found = {n: np.array([row.get(n, math.nan) for row in rows], float) for n in names}
        return {n: column for n, column in found.items() if np.isfinite(column).any()}

    return Cells(tuple(models), tuple(benchmarks), columns(scores), columns(probes))


def read_cells(
    path: Path, *, scores: Sequence[str] | None = None, probes: Sequence[str] | None = None
) -> Cells:
    """A table of cells from CSV or JSON (a list of objects, or `columns` and `rows`).

    Columns of text name the cell; numbers are scores (by name, or as listed) or else probes.
    """
    rows = _read_table(path)
    if not rows:
        raise InputError(f"'{path}' has no row")
    names = list(dict.fromkeys(name for row in rows for name in row))
    unknown = [n for n in [*(scores or ()), *(probes or ())] if n not in names]
    if unknown:
        raise InputError(f"'{path}' has no column '{unknown[0]}'; it has: {', '.join(names)}")
    numeric = [n for n in names if all(_is_number(row.get(n)) for row in rows)]
    numeric = [n for n in numeric if n.lower() not in (*MODEL_NAMES, *BENCHMARK_NAMES)]
    chosen = list(scores) if scores else [n for n in numeric if SCORE_NAMES.fullmatch(n)]
    others = [
        n
        for n in numeric
        if not SCORE_NAMES.fullmatch(n) and n not in chosen and n.lower() not in NOT_PROBES
    ]
    wanted = list(probes) if probes else others
    for name in [*chosen, *wanted]:
        if name not in numeric:
            raise InputError(f"column '{name}' of '{path}' holds values that are not numbers")
    labels = [n for n in names if n not in numeric]
    model = _named(labels, MODEL_NAMES, 0)
    benchmark = _named([n for n in labels if n != model], BENCHMARK_NAMES, 0)
    return _cells(
        [str(row.get(model, i)) if model else str(i) for i, row in enumerate(rows)],
        [str(row.get(benchmark, "")) if benchmark else "" for row in rows],
        [{n: _number(row.get(n)) for n in chosen} for row in rows],
        [{n: _number(row.get(n)) for n in wanted} for row in rows],
    )


def _read_table(path: Path) -> list[dict[str, object]]:
    if not path.is_file():
        raise InputError(f"no file '{path}'")
    if path.suffix.lower() == ".json":
        document = read_json(path)
        if isinstance(document, dict) and {"columns", "rows"} <= set(document):
            columns = document["columns"]
            return [dict(zip(columns, row, strict=True)) for row in document["rows"]]
        if isinstance(document, dict) and isinstance(document.get("cells"), list):
            document = document["cells"]
        if isinstance(document, list) and all(isinstance(row, dict) for row in document):
            return document
        raise InputError(
            f"'{path}' is not a table: give a list of objects, or an object with columns and rows"
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(line for line in file if line.strip())
            return [{(k or "").strip(): v for k, v in row.items()} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path}' is not a CSV table: {error}") from error


def _named(labels: Sequence[str], known: Sequence[str], place: int) -> str | None:
    by_name = {label.lower(): label for label in labels}
    for name in known:
        if name in by_name:
            return by_name[name]
    return labels[place] if len(labels) > place else None


def _is_number(value: object) -> bool:
    try:
        _number(value)
    except ValueError:
        return False
    return True


def _number(value: object) -> float:
    if value is None or (
        isinstance(value, str) and value.strip().lower() in ("", "nan", "-", "null")
    ):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(value)
    return float(value)
