"""Leaving the encoder early: what could be answered after each block, and the time it saves.

The stream after a block, pooled over tokens, is carried to the latent by a ridge map fitted on the
training part of each fold, and from there through the model's own joint head to the texts. A clip
leaves at the first block whose answer is sure enough (largest probability ≥ a threshold fixed
beforehand); nobody's labels but those of training clips are used, and those only to divide folds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.pruning import TIMED_CLIPS, first
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.metrics import uncertainty
from residual_audio.metrics.classification import softmax
from residual_audio.models.encoder import States
from residual_audio.passes.kept import Passes
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, blocks_of

THRESHOLDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
RIDGE = 1e-2


@dataclass(frozen=True)
class Exits:
    """Answers after every block; the last is the model itself."""

    places: tuple[str, ...]
    scores: FloatArray
    """[block, clip, class], from maps that have not seen the clip."""
    cost: FloatArray
    """[block], share of the encoder's time that has passed after it."""
    scale: float
    """Inverse temperature of the answers."""


def streams_after(store: Store, rows: np.ndarray) -> dict[str, FloatArray]:
    """The pooled stream after each block: what entered, plus attention, plus MLP."""
    out = {}
    for stage, block in blocks_of(store.sites):
        names = [f"blocks/s{stage}.b{block}/{kind}" for kind in ("stream", "attention", "mlp")]
        if not all(store.has(name) for name in names):
            raise InputError("early exits need the stream of every block: extract --capture blocks")
        parts = [np.asarray(store.array(name), np.float64)[rows] for name in names]
        out[f"s{stage}.b{block}"] = sum(parts[1:], parts[0])
    return out


def ridge_map(x: FloatArray, y: FloatArray, train: np.ndarray, ridge: float = RIDGE) -> FloatArray:
    """Predictions [clip, d] of y from x by a ridge regression on the training clips."""
    mean, target = x[train].mean(0), y[train].mean(0)
    spread = x[train].std(0)
    scale = np.where(spread > 1e-6 * spread.max(), spread, np.inf)  # a dead coordinate says nothing
    z = (x - mean) / scale
    gram = z[train].T @ z[train]
    gram[np.diag_indices_from(gram)] += ridge * len(train)
    return z @ np.linalg.solve(gram, z[train].T @ (y[train] - target)) + target


def answers_after(
    store: Store, problem: Problem, rows: np.ndarray, folds: Folds, cost: FloatArray
) -> Exits:
    """Scores after every block, each clip by a map fitted on the other folds."""
    streams = streams_after(store, rows)
    names = tuple(streams)
    scores = np.empty((len(names), len(problem), len(problem.classes)))
    for i, x in enumerate(streams.values()):
        for fold in range(len(folds)):
            train, test = folds.train(fold), folds.test(fold)
            latent = ridge_map(x, problem.latent.astype(np.float64), train)[test]
            with torch.no_grad():
                joint = problem.from_latent(torch.from_numpy(latent.astype(np.float32)))
            scores[i, test] = problem.on(train).scores(joint)
    scores[-1] = problem.scores_on(
        folds, problem.joint
    )  # after the last block the model answers itself
    sharp = np.median([problem.on(folds.train(i)).judge.scale for i in range(len(folds))])
    return Exits(names, scores, cost, float(sharp))


def exit_tables(
    problem: Problem, exits: Exits, thresholds: Sequence[float] = THRESHOLDS, seed: int = 0
) -> list[Table]:
    """`early_exit_blocks` (all clips leave there), `early_exit_thresholds` (the sure ones do)."""
    base = first(exits.scores[-1], problem.codes)
    rows = []
    for place, scores, cost in zip(exits.places, exits.scores, exits.cost, strict=True):
        hits = first(scores, problem.codes)
        rows.append({"block": place, **_against(problem, hits, base, 1 - float(cost), seed)})
    sure = []
    for threshold in thresholds:
        left = exit_places(exits.scores, threshold, exits.scale)
        every = np.arange(len(left))
        hits = first(exits.scores[left, every], problem.codes)
        saved = 1 - float(exits.cost[left].mean())
        early = float((left < len(exits.places) - 1).mean())
        row = {"threshold": threshold, "left_early": early}
        sure.append(row | _against(problem, hits, base, saved, seed))
    note = (
        f"{len(problem)} clips; maps fitted on other folds; time measured on this machine, the map "
        "and the joint head not counted",
    )
    return [
        from_rows("early_exit_blocks", rows, "Text accuracy after each block", note),
        from_rows("early_exit_thresholds", sure, "Clips leave at the first sure answer", note),
    ]


def exit_places(scores: FloatArray, threshold: float, scale: float = 1.0) -> np.ndarray:
    """[clip]: the first block whose answer is sure enough, else the last."""
    sure = np.stack([softmax(block, scale).max(1) >= threshold for block in scores])  # block, clip
    sure[-1] = True
    return sure.argmax(0)


def _against(
    problem: Problem, hits: FloatArray, base: FloatArray, saved: float, seed: int
) -> dict[str, float]:
    gap = uncertainty.paired_difference(hits, base, groups=problem.groups, seed=seed)
    return {
        "top1": float(hits.mean()),
        "loss": -gap.value,
        "loss_low": -gap.high,
        "loss_high": -gap.low,
        "time_saved": saved,
        "n": len(hits),
    }


@torch.inference_mode()
def cost_of_blocks(passes: Passes, repeats: int = 5, progress: Progress = SILENT) -> FloatArray:
    """[block]: share of the encoder's time that has passed after it, best of several passes."""
    encoder = passes.model.encoder
    n = len(blocks_of(encoder.sites))
    features = passes.take(slice(0, TIMED_CLIPS))
    keep = States(encoder.sites, set(range(n)))
    encoder.encode(features, tap=keep)
    best = np.full(n + 1, np.inf)  # from the input, then from each block on
    progress.step("timing blocks", repeats, "passes")
    for _ in range(repeats):
        for i in range(n + 1):
            begin = time.perf_counter()
            if i == 0:
                encoder.encode(features)
            else:
                encoder.encode(None, start=keep.states[i - 1])
            best[i] = min(best[i], time.perf_counter() - begin)
        progress.advance()
    after = 1 - best[2:] / best[0]  # what is left from block b + 1 on
    return np.append(np.clip(np.maximum.accumulate(after), 0.0, 1.0), 1.0)
