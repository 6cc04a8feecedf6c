"""Does geometry predict scores? Correlations of every probe with every score over cells.

A cell is one model on one benchmark. Cells that share a model or a benchmark are not independent,
so beside the plain correlations there is one within benchmarks: both sides with the benchmark's
mean taken out, orders permuted within benchmarks only. A probe that merely follows the size of the
benchmark (ranks grow with n) loses its correlation there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.geometry.cells import Cells
from residual_audio.metrics.uncertainty import correlation, fdr

Array = npt.NDArray[Any]

FEWEST_CELLS = 3
FEW_CELLS = 10
MANY_ORDERS = 200_000


@dataclass(frozen=True)
class ProbeCorrelation:
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
    q: float
    """The permutation p of Spearman's ρ among all correlations of the study (false discovery)."""
    n: int


@dataclass(frozen=True)
class CorrelationStudy:
    rows: tuple[ProbeCorrelation, ...]
    warnings: tuple[str, ...]
    n_cells: int

    def __getitem__(self, names: tuple[str, str]) -> ProbeCorrelation:
        for row in self.rows:
            if (row.probe, row.score) == names:
                return row
        raise InputError(f"no correlation of probe '{names[0]}' with score '{names[1]}'")


def correlate(
    cells: Cells, *, scores: Sequence[str] | None = None, seed: int = 0
) -> CorrelationStudy:
    """Every probe with every score, strongest Spearman first for each score."""
    chosen = list(cells.scores) if scores is None else list(scores)
    missing = [name for name in chosen if name not in cells.scores]
    if missing:
        raise InputError(f"no score '{missing[0]}'; there are: {', '.join(cells.scores)}")
    if not chosen or not cells.probes:
        raise InputError(
            f"a study needs scores and probes, the cells have {len(chosen)} and {len(cells.probes)}"
        )
    if len(cells) < FEWEST_CELLS:
        raise InputError(
            f"a correlation needs at least {FEWEST_CELLS} cells (a model on a benchmark), there "
            f"are {len(cells)}: probe and score more models or data sets first"
        )
    rows = []
    for score in chosen:
        of_score = [_row(cells, probe, score, seed) for probe in cells.probes]
        rows += sorted(
            of_score, key=lambda r: -abs(r.spearman) if r.spearman == r.spearman else 1.0
        )
    rates = fdr([row.p_spearman_permutation for row in rows])
    found = tuple(replace(row, q=float(q)) for row, q in zip(rows, rates, strict=True))
    return CorrelationStudy(found, tuple(_warnings(cells, found)), len(cells))


def _row(cells: Cells, probe: str, score: str, seed: int) -> ProbeCorrelation:
    x, y = cells.probes[probe], cells.scores[score]
    rank = correlation(x, y, "spearman", seed=seed)
    line = correlation(x, y, "pearson", seed=seed)
    within, p_within = correlation_within(x, y, cells.benchmarks, seed=seed)
    return ProbeCorrelation(
        probe, score, rank.value, rank.p, rank.p_permutation, line.value, line.p,
        line.p_permutation, within, p_within, math.nan, rank.n,
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


def _warnings(cells: Cells, rows: Sequence[ProbeCorrelation]) -> list[str]:
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
    if len(rows) > 1:
        clear = sum(row.q <= 0.05 for row in rows)
        found.append(
            f"{len(rows)} correlations were computed: about {0.05 * len(rows):.1f} are expected "
            f"below p = 0.05 by chance alone; {clear} have a false discovery rate q ≤ 0.05"
        )
    if any("rank" in name for name in cells.probes) and benchmarks > 1:
        found.append(
            "ranks grow with the number of items: across benchmarks of different size, compare "
            "probes that were taken at the same n"
        )
    return found
