"""Ranks and retrieval scores where a query may have several right answers.

Conventions: `similarity` [query, item], larger is better; `relevant` holds the indices of the right
items of each query. Ranks count from 1 and are pessimistic: wrong items with the same similarity
come first, so a constant model ends last, not first. AP@k is divided by min(k, number of right
answers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.metrics.classification import chance_average_precision

Array = npt.NDArray[Any]
Relevant = Sequence[Array | Sequence[int]]


def relevant_ranks(similarity: Array, relevant: Relevant) -> list[Array]:
    """For each query, the sorted ranks of its right answers."""
    similarity = np.asarray(similarity)
    if similarity.ndim != 2 or len(relevant) != len(similarity):
        raise InputError(
            f"{len(relevant)} lists of right answers do not fit a similarity of {similarity.shape}"
        )
    if not np.isfinite(similarity).all():
        query, item = np.argwhere(~np.isfinite(similarity))[0]
        raise InputError(f"the similarity of query {query} and item {item} is not a finite number")
    rows = zip(similarity, relevant, strict=True)
    return [_ranks(row, np.asarray(right, dtype=int)) for row, right in rows]


def _ranks(row: Array, right: Array) -> Array:
    if right.size == 0:
        raise InputError("a query has no right answer: leave it out before ranking")
    own = np.sort(row[right])[::-1]
    reaching = (row >= own[:, None]).sum(1)  # all items that score at least as much
    right_reaching = (own >= own[:, None]).sum(1)
    return reaching - right_reaching + np.arange(1, len(own) + 1)


def rank_both_ways(
    similarity: Array, relevant: Sequence[Sequence[int]]
) -> tuple[list[Array], list[Array]]:
    """Ranks of the right clips of each caption and of the right captions of each clip.

    `similarity` [clip, caption]; `relevant[j]` holds the clips that caption j describes.
    """
    similarity = np.asarray(similarity)
    captions_of: list[list[int]] = [[] for _ in range(len(similarity))]
    for j, clips in enumerate(relevant):
        for i in clips:
            captions_of[i].append(j)
    return relevant_ranks(similarity.T, relevant), relevant_ranks(similarity, captions_of)


def first_rank(ranks: Sequence[Array]) -> Array:
    """Rank of the best right answer of each query: what recall at k and the median look at."""
    return np.array([r[0] for r in ranks], dtype=np.int64)


def recall_at_k(ranks: Sequence[Array], k: int) -> Array:
    """1 for each query with a right answer among the first k."""
    return (first_rank(ranks) <= k).astype(np.float64)


def average_precision_at_k(ranks: Sequence[Array], k: int) -> Array:
    """AP@k = 1/min(r, k) Σ_j j / rank_j over the right answers with rank_j ≤ k, for each query."""
    return np.array(
        [(np.arange(1, len(r) + 1)[r <= k] / r[r <= k]).sum() / min(len(r), k) for r in ranks]
    )


def weighted_median(values: Array, counts: Array | None = None) -> Array:
    """Median of `values` [n], each taken as often as a row of `counts` [b, n] says."""
    values = np.asarray(values, dtype=np.float64)
    counts = np.ones((1, len(values))) if counts is None else counts
    order = np.argsort(values, kind="stable")
    ranked, upto = values[order], np.cumsum(counts[:, order], axis=1)
    half = upto[:, -1:] / 2
    # the middle one, or the mean of the two middle ones
    lower = (upto < half).sum(1)
    upper = (upto <= half).sum(1)
    return (ranked[lower] + ranked[np.minimum(upper, len(ranked) - 1)]) / 2


def chance_recall_at_k(n_items: int, n_relevant: Array, k: int) -> float:
    """Mean over queries of 1 − C(n−r, k) / C(n, k): a right answer among k random ones."""
    return float(np.mean([1 - _none_in(n_items, int(r), k) for r in np.atleast_1d(n_relevant)]))


def chance_average_precision_at_k(n_items: int, n_relevant: Array, k: int) -> float:
    """Mean over queries of the expected AP@k of a random order."""
    sizes, times = np.unique(np.atleast_1d(n_relevant), return_counts=True)
    values = [chance_average_precision(n_items, int(r), k) for r in sizes]
    return float(np.average(values, weights=times))


def chance_median_rank(n_items: int, n_relevant: Array) -> float:
    """Median over queries of the best rank in a random order."""
    sizes, times = np.unique(np.atleast_1d(n_relevant), return_counts=True)
    # P(best rank > m) falls with m: the median lies where it crosses one half
    low, high = 0, n_items
    while high - low > 1:
        m = (low + high) // 2
        beyond = np.average([_none_in(n_items, int(r), m) for r in sizes], weights=times)
        low, high = (m, high) if beyond > 0.5 else (low, m)
    # with one answer each, P(rank ≤ n/2) is exactly one half for even n: the median is between
    at = np.average([_none_in(n_items, int(r), high) for r in sizes], weights=times)
    return float(high + 0.5) if math.isclose(at, 0.5) else float(high)


def _none_in(n: int, r: int, k: int) -> float:
    """C(n−r, k) / C(n, k), without large numbers."""
    if k > n - r:
        return 0.0
    i = np.arange(min(r, k))
    wide = max(r, k)
    return float(np.prod((n - wide - i) / (n - i)))
