"""How many components does a head need? Accuracy when the others stay at their mean.

Spectra are those of the training part of each fold, accuracy that of its test part: components that
merely fit the clips they were found on gain nothing by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.engine.cores import on_single_cores
from residual_audio.metrics import classification, uncertainty
from residual_audio.metrics.spectra import fit_spectrum, kept_share
from residual_audio.passes.kept import Passes
from residual_audio.reweight.network import NetworkGains
from residual_audio.reweight.rules import Ground, retain
from residual_audio.reweight.spectra import Components, unit_names
from residual_audio.reweight.terms import direct_terms
from residual_audio.types import FloatArray


def retention_direct(
    problem: Problem,
    folds: Folds,
    ks: Sequence[int],
    stage_sets: Sequence[Sequence[int]],
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Of each head's contribution to the latent, only the first k components."""
    hits = np.full((len(stage_sets), len(ks), len(problem)), np.nan)
    shares = np.zeros((len(stage_sets), len(ks)))

    def some_folds(jobs: Iterator[int]) -> None:
        for fold in jobs:
            train, test = folds.train(fold), folds.test(fold)
            for i, stages in enumerate(stage_sets):
                units = unit_names(problem.sites, "head", stages)
                spectra = problem.spectra(units, train, Components())
                terms = direct_terms(problem.direct, spectra).at(test)
                for j, k in enumerate(ks):
                    # directions beyond the kept axes of a unit are not touched, as in training
                    gains = retain(Ground(spectra, problem.sites), k)
                    with torch.no_grad():
                        latent = terms.latent(terms.vector(gains))
                        scores = problem.scores(problem.from_latent(latent))
                    hits[i, j, test] = classification.true_rank(scores, problem.codes[test]) == 1
                    kept = [kept_share(s.eigenvalues, k) for s in spectra.values()]
                    shares[i, j] += float(np.mean(kept)) / len(folds)

    on_single_cores(some_folds, len(folds))
    problem.forget()
    found = [
        _rows(problem, "direct", stages, ks, hits[i], shares[i], seed)
        for i, stages in enumerate(stage_sets)
    ]
    return [row for rows in found for row in rows]


def retention_network(
    problem: Problem,
    folds: Folds,
    passes: Passes,
    ks: Sequence[int],
    stage_sets: Sequence[Sequence[int]],
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Inside the network: every token of a head keeps its first k components."""
    rows = []
    for stages in stage_sets:
        units = unit_names(problem.sites, "head", stages)
        hits = np.full((len(ks), len(problem)), np.nan)
        shares = np.zeros(len(ks))
        for fold in range(len(folds)):
            train, test = folds.train(fold), folds.test(fold)
            spectra = {u: fit_spectrum(problem.vectors(u)[train]) for u in units}
            for i, k in enumerate(ks):
                if progress is not None:
                    progress(f"stages {list(stages)}, {k} components, fold {folds.names[fold]}")
                acting = NetworkGains(retain(Ground(spectra, problem.sites), k), problem.sites)
                joint = _run(problem, passes, acting, test)
                scores = problem.scores(joint)
                hits[i, test] = classification.true_rank(scores, problem.codes[test]) == 1
                kept = [kept_share(s.eigenvalues, k) for s in spectra.values()]
                shares[i] += float(np.mean(kept)) / len(folds)
        rows += _rows(problem, "network", stages, ks, hits, shares, seed)
    return rows


@torch.no_grad()
def _run(problem: Problem, passes: Passes, gains: NetworkGains, rows: np.ndarray) -> FloatArray:
    parts = []
    edit = gains.edit()
    for _, features in passes.batches(rows.tolist()):
        encoded = passes.model.encoder.encode(features, edit=edit)
        parts.append(passes.model.joint(gains.output(encoded)).numpy())
    return np.concatenate(parts)


def _rows(
    problem: Problem,
    path: str,
    stages: Sequence[int],
    ks: Sequence[int],
    hits: FloatArray,
    shares: FloatArray,
    seed: int,
) -> list[dict[str, Any]]:
    known = ~np.isnan(hits[0])
    base = classification.true_rank(problem.scores(problem.joint), problem.codes) == 1
    groups = [g for g, k in zip(problem.groups, known, strict=True) if k]
    out = []
    for i, k in enumerate(ks):
        gap = uncertainty.paired_difference(
            hits[i, known], base[known].astype(np.float64), groups=groups, seed=seed
        )
        out.append(
            {
                "path": path,
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
