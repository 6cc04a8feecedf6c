"""Heads taken out of the weights in order of a score: what is left of the accuracy, and the time.

Scores are computed on the training part of each fold, accuracy on its test part, with the pruned
encoder itself; the mean of a removed head (over training clips) stays in the bias.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
import torch

from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.engine.cores import stream_clips
from residual_audio.metrics import classification, uncertainty
from residual_audio.metrics.separability import fisher
from residual_audio.models.encoder import Encoder
from residual_audio.passes.kept import Passes
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.prune import prune_heads
from residual_audio.types import FloatArray, Head, Site

TIMED_CLIPS = 8
ORDERS = ("direct", "spread", "fisher", "random")


def head_scores(problem: Problem, rows: np.ndarray, seed: int = 0) -> dict[str, FloatArray]:
    """Importance of every head by these clips, higher is more important.

    `direct`: what the margin of the right class loses without the head's contribution. `spread`:
    the contribution's variance. `fisher`: between- over within-class variance. `random`: a draw.
    """
    heads = [head for site in problem.sites for head in site.heads]
    parts = np.stack([problem.direct.head(head)[rows] for head in heads])  # head clip D
    parts = parts - parts.mean(1, keepdims=True)
    latent, codes = problem.latent[rows], problem.codes[rows]

    def margin(x: FloatArray) -> float:
        with torch.no_grad():
            joint = problem.from_latent(torch.from_numpy(np.asarray(x, np.float32)))
        scores = problem.scores(joint)
        right = scores[np.arange(len(codes)), codes]
        others = np.where(np.arange(scores.shape[1]) == codes[:, None], -np.inf, scores)
        return float((right - others.max(1)).mean())

    whole = margin(latent)
    pooled = [np.asarray(problem.vectors(head))[rows] for head in heads]
    return {
        "direct": np.array([whole - margin(latent - part) for part in parts]),
        "spread": parts.var(1).sum(-1),
        "fisher": np.array([float(np.ravel(fisher(x[None], codes))[0]) for x in pooled]),
        "random": np.random.default_rng(seed).random(len(heads)),
    }


def removable(sites: Sequence[Site], scores: FloatArray) -> list[Head]:
    """Heads, least important first; the most important one of every block stays."""
    heads = [head for site in sites for head in site.heads]
    by_head = dict(zip(heads, scores.tolist(), strict=True))
    last = {max(site.heads, key=by_head.__getitem__) for site in sites if site.n_heads}
    return sorted((h for h in heads if h not in last), key=by_head.__getitem__)


class Pruned(TypedDict):
    """Accuracy and time with so many heads taken out in one order."""

    order: str
    removed: int
    top1: float
    loss: float
    loss_low: float
    loss_high: float
    seconds: float
    time_saved: float
    n: int


@dataclass
class _Curve:
    """One order: `hits` [count, clip], and seconds a clip of the whole and the pruned encoder."""

    hits: FloatArray
    seconds: list[tuple[float, float]] = field(default_factory=list)
    longest: int = 0
    """Heads that may go at all."""


def pruning_curves(
    problem: Problem,
    folds: Folds,
    shares: Sequence[float] = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9),
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Pruned]:
    """One row an order and share of heads removed: accuracy, paired loss, seconds a clip."""
    passes = problem.encoder.passes
    counts = [round(share * sum(site.n_heads for site in problem.sites)) for share in shares]
    curves: dict[str, _Curve] = {}
    progress.step("heads out", len(folds) * len(ORDERS) * len(counts), "runs")
    for fold in range(len(folds)):
        train, test = folds.train(fold), folds.test(fold)
        means, here = _means(problem, train), problem.on(train)
        for order, scores in head_scores(here, train, seed).items():
            queue = removable(problem.sites, scores)
            empty = np.full((len(counts), len(problem)), np.nan)
            curve = curves.setdefault(order, _Curve(empty, longest=len(queue)))
            for i, count in enumerate(counts):
                small = prune_heads(passes.model.encoder, queue[:count], means)
                found = here.scores(_joint(passes, small, test))
                curve.hits[i, test] = first(found, problem.codes[test])
                if fold == 0:
                    curve.seconds.append(_times(passes, small))
                progress.advance()
    base = first(problem.scores_on(folds, problem.joint), problem.codes)
    rows: list[Pruned] = []
    for order, curve in curves.items():
        for i, count in enumerate(counts):
            gap = uncertainty.paired_difference(
                curve.hits[i], base, groups=problem.groups, seed=seed
            )
            whole, pruned = curve.seconds[i]
            rows.append(
                {
                    "order": order,
                    "removed": min(count, curve.longest),
                    "top1": float(curve.hits[i].mean()),
                    "loss": -gap.value,
                    "loss_low": -gap.high,
                    "loss_high": -gap.low,
                    "seconds": pruned,
                    "time_saved": 1 - pruned / whole,
                    "n": len(problem),
                }
            )
    return rows


def first(scores: FloatArray, codes: np.ndarray) -> FloatArray:
    """[clip]: 1 where the true class is before every other; a tie is a failure."""
    return (classification.true_rank(scores, codes) == 1).astype(np.float64)


def _means(problem: Problem, rows: np.ndarray) -> dict[Site, torch.Tensor]:
    """[head, d_head] of each attention site: the heads' mean outputs."""
    found = {}
    for site in problem.sites:
        if site.n_heads:
            vectors = [np.asarray(problem.vectors(head))[rows].mean(0) for head in site.heads]
            found[site] = torch.from_numpy(np.stack(vectors).astype(np.float32))
    return found


@torch.inference_mode()
def _joint(passes: Passes, encoder: Encoder, rows: np.ndarray) -> FloatArray:
    def work(part: torch.Tensor, _: Sequence[int]) -> torch.Tensor:
        return passes.model.joint(encoder.encode(passes.take(part)))

    index = torch.as_tensor(rows, device=passes.model.device)
    batches = ((some, range(len(some))) for some in index.split(64))
    return torch.cat(list(stream_clips(work, batches))).cpu().numpy()


@torch.inference_mode()
def _times(passes: Passes, small: Encoder, repeats: int = 5) -> tuple[float, float]:
    """Seconds a clip of the whole and of the pruned encoder, in turn, best of several."""
    features = passes.take(slice(0, TIMED_CLIPS))
    best = [np.inf, np.inf]
    for _ in range(repeats):
        for i, encoder in enumerate((passes.model.encoder, small)):
            start = time.perf_counter()
            encoder.encode(features)
            best[i] = min(best[i], time.perf_counter() - start)
    n = min(TIMED_CLIPS, len(passes))
    return best[0] / n, best[1] / n
