"""How many components does a head need? Accuracy when the others stay at their mean.

Spectra are those of the training part of each fold, accuracy that of its test part: components that
merely fit the clips they were found on gain nothing by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.engine.cores import on_single_cores
from residual_audio.metrics import classification, uncertainty
from residual_audio.metrics.spectra import kept_share
from residual_audio.passes.kept import Passes
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.axes import chosen_units, network_spectra
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.rules import Ground, retain_first
from residual_audio.reweight.terms import DirectTerms
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, parse_units


@dataclass(frozen=True)
class RetentionGrid:
    """What is tried: numbers of components, and stages whose heads keep only those."""

    ks: tuple[int, ...]
    stage_sets: tuple[tuple[int, ...], ...]


class Retained(TypedDict):
    """Accuracy with k components a head."""

    path: str
    stages: str
    k: int
    variance_kept: float
    top1: float
    loss: float
    loss_low: float
    loss_high: float
    n: int


def retention_grid(problem: Problem) -> RetentionGrid:
    """Numbers of components, and every stage alone and all of them."""
    widest = max(site.d_head for site in problem.sites)
    ks = sorted({1, 2, 3, 4, 6, 8, 12, 16, 20, widest} & set(range(1, widest + 1)))
    sets = [(stage,) for stage in problem.stages] + [tuple(problem.stages)]
    return RetentionGrid(tuple(ks), tuple(sets))


def retention_table(path: str, rows: Sequence[Retained]) -> Table:
    """`retention_direct` or `retention_network`."""
    return from_rows(f"retention_{path}", rows, "Accuracy with k components a head")


def retention_direct(
    problem: Problem,
    folds: Folds,
    grid: RetentionGrid,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Retained]:
    """Of each head's contribution to the latent, only the first k components."""
    ks, sets = grid.ks, grid.stage_sets
    hits = np.full((len(sets), len(ks), len(problem)), np.nan)
    shares = np.zeros((len(sets), len(ks)))
    progress.step("components a head", len(folds) * len(sets) * len(ks), "runs")

    def some_folds(jobs: Iterator[int]) -> None:
        for fold in jobs:
            train, test = folds.train(fold), folds.test(fold)
            here = problem.on(train)
            terms = problem.terms(chosen_units(problem.sites, "head", None), train).at(test)
            for i, stages in enumerate(sets):
                units = parse_units(terms.units, problem.sites)
                own = np.array([unit.stage in stages for unit in units])
                kept = [terms.spectra[terms.units[u]].eigenvalues for u in np.flatnonzero(own)]
                for j, k in enumerate(ks):
                    latent = terms.shifted(_beyond(terms, own, k))
                    with torch.no_grad():
                        scores = here.scores(problem.from_latent(latent))
                    hits[i, j, test] = classification.true_rank(scores, problem.codes[test]) == 1
                    share = np.mean([kept_share(values, k) for values in kept])
                    shares[i, j] += float(share) / len(folds)
                progress.advance(len(ks))

    with threadpool_limits(1, user_api="blas"):  # numpy would start threads in every thread
        on_single_cores(some_folds, len(folds))
    problem.forget()
    rows = _Rows(problem, "direct", ks, seed, folds)
    return [row for i, s in enumerate(sets) for row in rows.of(s, hits[i], shares[i])]


def _beyond(terms: DirectTerms, own: np.ndarray, k: int) -> FloatArray:
    """[gain], λ − 1: −1 past the first k components of these units, else 0. Directions beyond the
    axes of a unit are not touched, as in training."""
    at = np.concatenate([np.arange(size) for size in terms.sizes])
    return -((at >= k) & np.repeat(own, terms.sizes)).astype(np.float64)


def retention_network(
    problem: Problem,
    folds: Folds,
    grid: RetentionGrid,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Retained]:
    """Inside the network: every token of a head keeps its first k components."""
    ks = grid.ks
    table = _Rows(problem, "network", ks, seed, folds)
    rows: list[Retained] = []
    progress.step("components a head", len(grid.stage_sets) * len(folds) * len(ks), "runs")
    for stages in grid.stage_sets:
        units = chosen_units(problem.sites, "head", stages)
        hits = np.full((len(ks), len(problem)), np.nan)
        shares = np.zeros(len(ks))
        for fold in range(len(folds)):
            train, test = folds.train(fold), folds.test(fold)
            spectra = network_spectra(problem.vectors, units, train)
            for i, k in enumerate(ks):
                kept_gains = retain_first(Ground(spectra, problem.sites), k)
                acting = NetworkGains(kept_gains, problem.sites)
                scores = problem.on(train).scores(_run(problem.encoder.passes, acting, test))
                hits[i, test] = classification.true_rank(scores, problem.codes[test]) == 1
                kept = [kept_share(s.eigenvalues, k) for s in spectra.values()]
                shares[i] += float(np.mean(kept)) / len(folds)
                progress.advance()
        rows += table.of(stages, hits, shares)
    return rows


@torch.no_grad()
def _run(passes: Passes, gains: NetworkGains, rows: np.ndarray) -> FloatArray:
    parts = []
    edit = gains.edit()
    for _, features in passes.batches(rows.tolist()):
        encoded = passes.model.encoder.encode(features, edit=edit)
        parts.append(passes.model.joint(gains.output(encoded)).numpy())
    return np.concatenate(parts)


@dataclass(frozen=True)
class _Rows:
    """Accuracies as rows of a table, with what is lost against all components."""

    problem: Problem
    path: str
    ks: Sequence[int]
    seed: int
    folds: Folds

    def of(self, stages: Sequence[int], hits: FloatArray, shares: FloatArray) -> list[Retained]:
        """`hits` [k, clip], NaN where not tested; `shares` [k] of the variance."""
        problem = self.problem
        known = ~np.isnan(hits[0])
        answers = problem.scores_on(self.folds, problem.joint)
        base = classification.true_rank(answers, problem.codes) == 1
        groups = [g for g, k in zip(problem.groups, known, strict=True) if k]
        out: list[Retained] = []
        for i, k in enumerate(self.ks):
            gap = uncertainty.paired_difference(
                hits[i, known], base[known].astype(np.float64), groups=groups, seed=self.seed
            )
            out.append(
                {
                    "path": self.path,
                    "stages": "".join(map(str, stages)),
                    "k": k,
                    "variance_kept": float(shares[i]),
                    "top1": float(hits[i, known].mean()),
                    "loss": -gap.value,
                    "loss_low": -gap.high,
                    "loss_high": -gap.low,
                    "n": int(known.sum()),
                }
            )
        return out
