"""Does geometry predict scores? Correlations of every probe with every score over cells.

A cell is one model on one benchmark. Cells that share a model or a benchmark are not independent,
so beside the plain correlations there is one within benchmarks: both sides with the benchmark's
mean taken out, orders permuted within benchmarks only. A probe that merely follows the size of the
benchmark (ranks grow with n) loses its correlation there.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.files import read_json
from residual_audio.metrics.uncertainty import correlation
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
FEW_CELLS = 10
MANY_ORDERS = 200_000


@dataclass(frozen=True)
class Cells:
    """A table: one row a (model, benchmark), columns of scores and of probes."""

    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    scores: dict[str, Array]
    probes: dict[str, Array]

    def __len__(self) -> int:
        return len(self.models)


@dataclass(frozen=True)
class Row:
    """One probe against one score."""

    probe: str
    score: str
    spearman: float
    p_spearman: float
    p_spearman_permutation: float
    pearson: float
    p_pearson: float
    p_pearson_permutation: float
    pearson_within: float
    """Within benchmarks; NaN where there is only one benchmark or one model."""
    p_within: float
    n: int


@dataclass(frozen=True)
class Study:
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    n_cells: int

    def __getitem__(self, names: tuple[str, str]) -> Row:
        for row in self.rows:
            if (row.probe, row.score) == names:
                return row
        raise InputError(f"no correlation of probe '{names[0]}' with score '{names[1]}'")


def correlate(cells: Cells, *, scores: Sequence[str] | None = None, seed: int = 0) -> Study:
    """Every probe with every score, strongest Spearman first for each score."""
    chosen = list(cells.scores) if scores is None else list(scores)
    missing = [name for name in chosen if name not in cells.scores]
    if missing:
        raise InputError(f"no score '{missing[0]}'; there are: {', '.join(cells.scores)}")
    if not chosen or not cells.probes:
        raise InputError(
            f"a study needs scores and probes, the cells have {len(chosen)} and {len(cells.probes)}"
        )
    rows = []
    for score in chosen:
        found = [_row(cells, probe, score, seed) for probe in cells.probes]
        rows += sorted(found, key=lambda r: -abs(r.spearman) if r.spearman == r.spearman else 1.0)
    return Study(tuple(rows), tuple(_warnings(cells, len(rows))), len(cells))


def _row(cells: Cells, probe: str, score: str, seed: int) -> Row:
    x, y = cells.probes[probe], cells.scores[score]
    rank = correlation(x, y, "spearman", seed=seed)
    line = correlation(x, y, "pearson", seed=seed)
    within, p_within = correlation_within(x, y, cells.benchmarks, seed=seed)
    return Row(
        probe, score, rank.value, rank.p, rank.p_permutation, line.value, line.p,
        line.p_permutation, within, p_within, rank.n,
    )  # fmt: skip


def correlation_within(
    x: Array, y: Array, blocks: Sequence[str], *, n_permutations: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Pearson with each block's mean taken out; p by permuting y within blocks."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y, names = x[known], y[known], np.asarray(blocks)[known]
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    members = [rows for rows in members if len(rows) > 1]
    if len(members) < 2:
        return math.nan, math.nan
    x, y = (np.concatenate([v[rows] - v[rows].mean() for rows in members]) for v in (x, y))
    scale = np.linalg.norm(x) * np.linalg.norm(y)
    if not scale > 1e-12 * (1 + np.abs(x).max() * np.abs(y).max()):
        return math.nan, math.nan
    seen = float(x @ y / scale)
    sizes = [len(rows) for rows in members]
    starts = np.cumsum([0, *sizes[:-1]])
    orders: Iterable[Array]
    if math.prod(math.factorial(size) for size in sizes) <= MANY_ORDERS:
        places = zip(sizes, starts, strict=True)
        inner = [[np.array(p) + s for p in permutations(range(k))] for k, s in places]
        orders, exact = (np.concatenate(parts) for parts in product(*inner)), True
    else:
        rng = np.random.default_rng(seed)
        orders = (
            np.concatenate([rng.permutation(k) + s for k, s in zip(sizes, starts, strict=True)])
            for _ in range(n_permutations)
        )
        exact = False
    reached = [abs(x @ y[order]) / scale >= abs(seen) - 1e-12 for order in orders]
    p = np.mean(reached) if exact else (sum(reached) + 1) / (len(reached) + 1)
    return seen, float(p)


def _warnings(cells: Cells, n_tests: int) -> list[str]:
    found = []
    n, models, benchmarks = len(cells), len(set(cells.models)), len(set(cells.benchmarks))
    if n < FEW_CELLS:
        found.append(
            f"only {n} cells: a Spearman correlation of {n} points needs to be near ±1 to mean "
            "anything; read p values as suggestive"
        )
    if models < n or benchmarks < n:
        found.append(
            f"{n} cells come from {models} models and {benchmarks} benchmarks: they are not "
            "independent, plain p values are too small; see the correlation within benchmarks"
        )
    if n_tests > 1:
        found.append(
            f"{n_tests} correlations were computed: about {0.05 * n_tests:.1f} are expected below "
            "p = 0.05 by chance alone"
        )
    if any("rank" in name for name in cells.probes) and benchmarks > 1:
        found.append(
            "ranks grow with the number of items: across benchmarks of different size, compare "
            "probes that were taken at the same n"
        )
    return found


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


def _read_table(path: Path) -> list[dict[str, Any]]:
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
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(line for line in file if line.strip())
        return [{(k or "").strip(): v for k, v in row.items()} for row in reader]


def _named(labels: Sequence[str], known: Sequence[str], place: int) -> str | None:
    by_name = {label.lower(): label for label in labels}
    for name in known:
        if name in by_name:
            return by_name[name]
    return labels[place] if len(labels) > place else None


def _is_number(value: Any) -> bool:
    try:
        _number(value)
    except ValueError:
        return False
    return True


def _number(value: Any) -> float:
    if value is None or (
        isinstance(value, str) and value.strip().lower() in ("", "nan", "-", "null")
    ):
        return math.nan
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(value)
    return float(value)
