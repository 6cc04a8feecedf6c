"""Retrieval scores against torchmetrics, and chance levels against random similarities."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchmetrics.functional.retrieval import (
    retrieval_average_precision,
    retrieval_hit_rate,
    retrieval_reciprocal_rank,
)

from residual_audio.errors import InputError
from residual_audio.metrics import ranks as r


def _case(n_queries: int, n_items: int, per_query: int, seed: int = 0) -> tuple[np.ndarray, list]:
    rng = np.random.default_rng(seed)
    similarity = rng.random((n_queries, n_items))  # above 0: torchmetrics drops what is not
    return similarity, [rng.permutation(n_items)[:per_query] for _ in range(n_queries)]


@pytest.mark.parametrize("per_query", [1, 5])
def test_equals_torchmetrics(per_query: int) -> None:
    similarity, relevant = _case(30, 40, per_query)
    ranks = r.relevant_ranks(similarity, relevant)
    for q, right in enumerate(relevant):
        target = torch.zeros(40, dtype=torch.bool)
        target[torch.tensor(right)] = True
        scores = torch.tensor(similarity[q])
        assert 1 / r.first_rank(ranks)[q] == pytest.approx(
            float(retrieval_reciprocal_rank(scores, target))
        )
        for k in (1, 5, 10):
            hit = float(retrieval_hit_rate(scores, target, top_k=k))
            assert r.recall_at_k(ranks, k)[q] == hit
        whole = float(retrieval_average_precision(scores, target))
        assert r.average_precision_at_k(ranks, 40)[q] == pytest.approx(whole)
        if per_query == 1:
            cut = float(retrieval_average_precision(scores, target, top_k=10))
            assert r.average_precision_at_k(ranks, 10)[q] == pytest.approx(cut)


def test_average_precision_cut_by_hand() -> None:
    # right answers at ranks 1, 4 and 12: (1/1 + 2/4) / 3 within the first ten
    assert r.average_precision_at_k([np.array([1, 4, 12])], 10)[0] == pytest.approx(0.5)
    # more right answers than places: a full list is perfect
    assert r.average_precision_at_k([np.arange(1, 21)], 10)[0] == pytest.approx(1.0)


def test_ties_count_against() -> None:
    ranks = r.relevant_ranks(np.ones((1, 7)), [[2, 5]])
    np.testing.assert_array_equal(ranks[0], [6, 7])


def test_weighted_median_equals_numpy() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 8):
        values = rng.integers(0, 9, size=n).astype(float)
        counts = rng.integers(0, 4, size=(20, n)).astype(float)
        counts[counts.sum(1) == 0, 0] = 1
        expected = [np.median(np.repeat(values, row.astype(int))) for row in counts]
        np.testing.assert_allclose(r.weighted_median(values, counts), expected)
        assert r.weighted_median(values)[0] == np.median(values)


@pytest.mark.parametrize("n_relevant", [1, 5])
def test_chance_levels_are_what_random_similarities_get(n_relevant: int) -> None:
    similarity, relevant = _case(20_000, 50, n_relevant, seed=2)
    ranks = r.relevant_ranks(similarity, relevant)
    sizes = np.full(len(ranks), n_relevant)
    for k in (1, 5, 10):
        assert r.recall_at_k(ranks, k).mean() == pytest.approx(
            r.chance_recall_at_k(50, sizes, k), abs=0.012
        )
    assert r.average_precision_at_k(ranks, 10).mean() == pytest.approx(
        r.chance_average_precision_at_k(50, sizes, 10), abs=0.006
    )
    median = float(np.median(r.first_rank(ranks)))
    assert abs(median - r.chance_median_rank(50, sizes)) <= 1


def test_chance_median_rank_by_hand() -> None:
    assert r.chance_median_rank(5, np.ones(3)) == 3.0
    assert r.chance_median_rank(4, np.ones(3)) == 2.5
    assert r.chance_recall_at_k(4, np.array([4]), 1) == 1.0


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="2 lists of right answers"):
        r.relevant_ranks(np.zeros((3, 4)), [[0], [1]])
    with pytest.raises(InputError, match="no right answer"):
        r.relevant_ranks(np.zeros((1, 4)), [[]])
    with pytest.raises(InputError, match="query 0 and item 2"):
        r.relevant_ranks(np.array([[0, 0, np.nan]]), [[0]])
