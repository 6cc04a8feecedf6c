"""Scores of a classifier that gives every class a similarity.

Conventions: `scores` [n, c], larger is better; `labels` [n], integers below c. The true class must
beat the others: a tie is a failure, so a model that gives every class the same score gets 0, not 1.
Functions with `counts` [b, n] return one value a row: the statistic of each bootstrap resample.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError

Array = npt.NDArray[Any]


def validate(scores: Array, labels: Array) -> tuple[Array, Array]:
    """Both as arrays, or an error that names what is wrong."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    if scores.ndim != 2 or labels.shape != (len(scores),):
        raise InputError(
            f"scores must be [n, c] and labels [n], not {scores.shape}, {labels.shape}"
        )
    if len(scores) == 0:
        raise InputError("there is no labelled item to score")
    if not np.isfinite(scores).all():
        row, column = np.argwhere(~np.isfinite(scores))[0]
        raise InputError(f"the score of item {row} for class {column} is not a finite number")
    if labels.min() < 0 or labels.max() >= scores.shape[1]:
        raise InputError(
            f"labels run from {labels.min()} to {labels.max()}, with {scores.shape[1]} classes"
        )
    return scores, labels.astype(np.int64)


def true_rank(scores: Array, labels: Array) -> Array:
    """Rank of the true class, from 1; classes with the same score come first."""
    scores, labels = validate(scores, labels)
    own = np.take_along_axis(scores, labels[:, None], axis=1)
    return (scores >= own).sum(1)


def softmax(scores: Array, scale: float | Array = 1.0) -> Array:
    """Probabilities of each row at inverse temperature `scale`, or at its own [row, 1]."""
    z = np.asarray(scores, dtype=np.float64) * scale
    z = np.exp(z - z.max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


def confusion_matrix(labels: Array, predictions: Array, n_classes: int) -> Array:
    """Counts [true, predicted]."""
    flat = np.asarray(labels) * n_classes + np.asarray(predictions)
    return np.bincount(flat, minlength=n_classes**2).reshape(n_classes, n_classes)


def per_class(confusion: Array) -> dict[str, Array]:
    """Support, precision, recall and F1 of each class; NaN where there is nothing to divide."""
    hits = np.diagonal(confusion).astype(np.float64)
    support, predicted = confusion.sum(1), confusion.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "support": support,
            "predicted": predicted,
            "precision": hits / predicted,
            "recall": hits / support,
            "f1": 2 * hits / (support + predicted),
        }


def macro_f1(
    labels: Array, predictions: Array, n_classes: int, counts: Array | None = None
) -> Array:
    """Mean F1 over the classes that occur or are predicted; one value a row of `counts`."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    counts = np.ones((1, len(labels))) if counts is None else counts
    classes = np.arange(n_classes)
    is_true = (labels[:, None] == classes).astype(np.float64)  # item, class
    is_predicted = (predictions[:, None] == classes).astype(np.float64)
    hits = counts @ (is_true * is_predicted)  # resample, class
    total = counts @ is_true + counts @ is_predicted
    with np.errstate(invalid="ignore"):
        f1 = 2 * hits / total  # NaN for a class that neither occurs nor is predicted
    return np.nanmean(f1, axis=1)


def average_precision(scores: Array, relevant: Array, counts: Array | None = None) -> Array:
    """Area under precision–recall by steps, Σ (R_i − R_{i−1}) P_i, ties taken together.

    `scores` [n], `relevant` [n] of 0 and 1. NaN where no item is relevant.
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    # position of the last item with the same score: precision is read there
    last = np.searchsorted(-ranked, -ranked, side="right") - 1
    counts = np.ones((1, len(scores))) if counts is None else counts
    drawn = counts[:, order]
    hits = drawn * relevant[order]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.cumsum(hits, axis=1)[:, last] / np.cumsum(drawn, axis=1)[:, last]
        return np.where(hits > 0, hits * precision, 0.0).sum(1) / hits.sum(1)


def mean_average_precision(scores: Array, labels: Array, counts: Array | None = None) -> Array:
    """Average precision of each class against the rest, averaged over the classes that occur.

    With few items of a class the steps of the curve are coarse and the mean lies above what many
    would give: compare it with `chance_average_precision` at the same n, not with 1 / classes.
    """
    scores, labels = validate(scores, labels)
    per = [
        average_precision(scores[:, c], (labels == c).astype(np.float64), counts)
        for c in np.unique(labels)
    ]
    return np.nanmean(np.stack(per), axis=0)


def chance_macro_f1(labels: Array, n_classes: int) -> float:
    """Macro-F1 of uniform guessing, to first order: precision p_c, recall 1/c for each class."""
    share = np.bincount(labels, minlength=n_classes) / len(labels)
    return float(np.mean(2 * share / n_classes / (share + 1 / n_classes)))


def chance_average_precision(n: int, n_relevant: int, k: int | None = None) -> float:
    """Expected average precision at k (all by default) of a random order of n items.

    E[AP@k] = 1/min(r, k) Σ_{i≤k} r/n · (1 + (i−1)(r−1)/(n−1)) / i
    """
    if not 0 < n_relevant <= n:
        return math.nan
    k = n if k is None else min(k, n)
    i = np.arange(1, k + 1)
    before = (i - 1) * (n_relevant - 1) / max(n - 1, 1)
    return float((n_relevant / n * (1 + before) / i).sum() / min(n_relevant, k))
