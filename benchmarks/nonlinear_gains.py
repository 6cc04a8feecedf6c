"""Do nonlinear coordinates or input-adaptive gains beat plain gains? Judged on grouped folds.

    python benchmarks/nonlinear_gains.py RUN [--folds 4]

RUN is a store with `direct`. All variants act on the same heads from the same direct path, and are
fitted and judged exactly as `residual-audio reweight compare` does it:

- kernel PCA: a head's coordinates a become the leading kernel principal components z(a) (Gaussian
  kernel of median width), read back by ridge regression a ≈ B z. The edit is a + B (λ − 1) z(a),
  with as many gains as before; λ = 1 changes nothing.
- diffusion: the same with diffusion-map coordinates (density divided out).
- kernel PCA where L/N is high: only in the half of the heads whose linear dimension exceeds their
  nonlinear one (TwoNN) most.
- gated: a second gain a component, times the clip's own local dimension (standardised, k nearest
  training clips in the latent); the control shuffles that number between clips.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division, Split, folds_of
from residual_audio.adaptation.methods.in_encoder import lesson_of
from residual_audio.adaptation.methods.method import Fitted, FromStore
from residual_audio.adaptation.methods.registry import REFERENCE, Entry, find_entries, offered
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.verdicts import against, verdicts
from residual_audio.judge.of_store import rows_of
from residual_audio.metrics.dimension import two_nn
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.spectra import participation_ratio
from residual_audio.reweight.fitting import fit_direct
from residual_audio.reweight.terms import DirectTerms
from residual_audio.store import open_store
from residual_audio.types import FloatArray

NEIGHBOURS = 20
Change = Callable[[DirectTerms, Problem, Split, int], DirectTerms]


@dataclass(frozen=True)
class Variant(FromStore):
    """ResiDual on all heads, its terms changed before they are fitted."""

    change: Change

    def fit(self, problem: Problem, split: Split) -> Fitted:
        plain = ResiDual(unbounded=True)
        terms = self.change(plain.terms(problem, split), problem, split, split.seed)
        lesson = lesson_of(problem, split)
        found = fit_direct(terms, problem.head, lesson, plain.regularity)
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(found.values, torch.as_tensor(split.test)))
        return Fitted(problem.scores(joint), terms.n_gains, notes=found.notes)


def kernel_coordinates(
    a: FloatArray, train: np.ndarray, n: int, diffusion: bool
) -> tuple[FloatArray, FloatArray]:
    """z [clip, n] of all clips, fitted on the training ones, and B [n, d] with a ≈ z B."""
    gaps = cdist(a[train], a[train], "sqeuclidean")
    width = np.median(gaps[gaps > 0])
    kernel = np.exp(-cdist(a, a[train], "sqeuclidean") / width)
    inside = kernel[train]
    if diffusion:
        density = kernel.sum(1)
        kernel = kernel / np.outer(density, density[train])
        kernel /= kernel.sum(1, keepdims=True)
        # a similar symmetric matrix has the same eigenvalues; extension is by the rows themselves
        inside = kernel[train]
        steady = np.sqrt(np.maximum(inside.sum(0), 1e-12))
        symmetric = inside * steady[:, None] / steady[None]
        values, vectors = eigh((symmetric + symmetric.T) / 2)
        vectors = vectors[:, ::-1][:, 1 : n + 1] / steady[:, None]
        values = values[::-1][1 : n + 1]
        z = kernel @ vectors / np.maximum(np.abs(values), 1e-9)
    else:
        rows = kernel.mean(1, keepdims=True)
        centred = inside - rows[train] - rows[train].T + inside.mean()
        values, vectors = eigh(centred)
        vectors, values = vectors[:, ::-1][:, :n], np.maximum(values[::-1][:n], 1e-9)
        z = (kernel - rows - inside.mean(0) + inside.mean()) @ vectors / np.sqrt(values)
    z = z / np.maximum(z[train].std(0), 1e-12)
    x = z[train]
    back = np.linalg.solve(x.T @ x + 1e-3 * len(x) * np.eye(n), x.T @ a[train])
    return z, back


def nonlinear(diffusion: bool = False, share: float = 1.0) -> Change:
    """Kernel coordinates in the share of heads with the highest L/N."""

    def change(terms: DirectTerms, problem: Problem, split: Split, seed: int) -> DirectTerms:
        amplitudes, axes = terms.amplitudes.numpy().copy(), terms.axes.numpy().copy()
        ends = np.cumsum(terms.sizes)
        parts = [slice(e - n, e) for n, e in zip(terms.sizes, ends, strict=True)]
        ratios = [curvature(amplitudes[split.train, part]) for part in parts]
        high = np.quantile(ratios, 1 - share)
        for part, ratio in zip(parts, ratios, strict=True):
            if ratio < high:
                continue
            a = amplitudes[:, part].astype(np.float64)
            z, back = kernel_coordinates(a, split.train, a.shape[1], diffusion)
            amplitudes[:, part] = z
            axes[part] = back @ axes[part]
        return replace(terms, amplitudes=torch.from_numpy(amplitudes), axes=torch.from_numpy(axes))

    return change


def curvature(a: FloatArray) -> float:
    """L/N: participation ratio over the TwoNN dimension; 0 where that cannot be had."""
    x = np.asarray(a, np.float64)
    linear = float(np.ravel(participation_ratio(x.var(0)))[0])
    bent = float(np.ravel(two_nn(neighbour_distances(x[None], 2)).value)[0])
    return linear / bent if bent > 0 else 0.0


def local_dimension(problem: Problem, split: Split) -> FloatArray:
    """[clip] Levina–Bickel estimate from the nearest training clips, standardised on them."""
    x = problem.latent.astype(np.float64)
    distance = np.sort(cdist(x, x[split.train]), axis=1)
    inside = np.zeros(len(x), bool)
    inside[split.train] = True
    first = inside.astype(int)[:, None] + np.arange(NEIGHBOURS)  # a training clip skips itself
    near = np.maximum(np.take_along_axis(distance, first, 1), 1e-12)
    found = (NEIGHBOURS - 1) / np.log(near[:, -1:] / near[:, :-1]).sum(1)
    return (found - found[split.train].mean()) / found[split.train].std()


def gated(shuffled: bool = False) -> Change:
    """A second gain a component, times the clip's local dimension."""

    def change(terms: DirectTerms, problem: Problem, split: Split, seed: int) -> DirectTerms:
        gate = local_dimension(problem, split)
        if shuffled:
            gate = np.random.default_rng(seed).permutation(gate)
        moved = terms.amplitudes * torch.from_numpy(gate.astype(np.float32))[:, None]
        return replace(
            terms,
            amplitudes=torch.cat([terms.amplitudes, moved], 1),
            axes=torch.cat([terms.axes, terms.axes]),
            units=(*terms.units, *(f"{unit}, gated" for unit in terms.units)),
            sizes=(*terms.sizes, *terms.sizes),
        )

    return change


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--folds", help="only clips of these official folds")
    asked = parser.parse_args()
    store = open_store(asked.run)
    problem = problem_of(store, rows_of(store, asked.folds.split(",") if asked.folds else None))
    folds = folds_of(problem.clips)
    variants = {
        "kernel PCA": nonlinear(),
        "kernel PCA where L/N is high": nonlinear(share=0.5),
        "diffusion": nonlinear(diffusion=True),
        "gated by local dimension": gated(),
        "gated, shuffled": gated(shuffled=True),
    }
    plain = Entry("heads", "ResiDual heads", "residual", ResiDual())
    entries = [
        *find_entries([REFERENCE], offered(problem)),
        plain,
        *(Entry(name, name, "residual", Variant(change)) for name, change in variants.items()),
    ]
    outcomes = compare(problem, folds, entries, how=Division(allow_missing=True))
    print(f"{len(problem)} clips, {len(problem.classes)} classes, {len(folds)} grouped folds")
    for record in verdicts(problem, folds, outcomes):
        if record.get("failed"):
            print(f"{record['method']}: {record['failed']}")
            continue
        line = f"{record['method']:32s} {record['parameters']:6d} gains  top-1 {record['top1']:.3f}"
        if record["key"] in variants:
            gap = against(problem, outcomes, record["key"], plain.key)
            line += f"  against plain {gap['gain']:+.3f} [{gap['low']:+.3f}, {gap['high']:+.3f}]"
        print(line)


if __name__ == "__main__":
    main()
