"""Listening-test statistics: scipy, published examples, and cases by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics import listening as m

# Shrout & Fleiss (1979), Table 2: six targets rated by four judges
SHROUT_FLEISS = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float
)


def test_icc_of_the_published_example() -> None:
    found = m.intraclass_correlation(SHROUT_FLEISS)
    assert found.icc2_1 == pytest.approx(0.29, abs=0.005)
    assert found.icc3_1 == pytest.approx(0.71, abs=0.005)
    assert found.icc2_k == pytest.approx(0.62, abs=0.005)
    assert found.icc3_k == pytest.approx(0.91, abs=0.005)
    assert (found.n_stimuli, found.n_listeners) == (6, 4)


def test_icc_laws() -> None:
    offset = SHROUT_FLEISS[:, :1] + np.array([0.0, 3.0, -2.0])
    assert m.intraclass_correlation(offset).icc3_1 == pytest.approx(1)
    assert m.intraclass_correlation(offset).icc2_1 < 0.8
    assert math.isnan(m.intraclass_correlation(np.ones((5, 3))).icc2_1)
    assert math.isnan(m.intraclass_correlation(np.ones((1, 3))).icc2_1)


@pytest.fixture
def ratings() -> np.ndarray:
    rng = np.random.default_rng(0)
    quality = np.array([95.0, 70.0, 60.0, 30.0])
    taste = rng.normal(0, 8, size=(12, 1, 1))
    return np.clip(quality + taste + rng.normal(0, 6, size=(12, 5, 4)), 0, 100)


def test_friedman_and_wilcoxon_equal_scipy(ratings: np.ndarray) -> None:
    means = ratings.mean(1)
    found = m.friedman(ratings)
    expected = stats.friedmanchisquare(*means.T)
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert found.kendall_w == pytest.approx(expected.statistic / (12 * 3))
    pairs = m.pairwise(ratings)
    assert len(pairs) == 6
    for pair in pairs:
        test = stats.wilcoxon(means[:, pair.a], means[:, pair.b])
        assert pair.p == pytest.approx(test.pvalue)
        assert pair.p_holm >= pair.p
        assert pair.difference == pytest.approx((means[:, pair.a] - means[:, pair.b]).mean())
    # every listener prefers the first to the last
    assert next(p for p in pairs if (p.a, p.b) == (0, 3)).rank_biserial == 1.0


def test_only_shared_trials_are_compared() -> None:
    """A system heard only in easy trials must not win by that."""
    easy, hard = 80.0, 20.0
    ratings = np.full((6, 2, 2), np.nan)
    ratings[:, 0, 0], ratings[:, 1, 0] = easy, hard
    ratings[:, 0, 1] = easy  # the second system is in the easy trial only
    ratings += np.random.default_rng(1).normal(0, 0.1, size=ratings.shape)
    (pair,) = m.pairwise(ratings)
    assert abs(pair.difference) < 1
    assert math.isnan(m.friedman(ratings).p)  # two systems: no Friedman test


def test_summary_resamples_listeners(ratings: np.ndarray) -> None:
    summaries = m.summarise(ratings)
    for k, one in enumerate(summaries):
        assert one.mean == pytest.approx(ratings[:, :, k].mean())
        assert one.median == pytest.approx(np.median(ratings[:, :, k]))
        assert one.mean_low < one.mean < one.mean_high
        assert one.median_low <= one.median <= one.median_high
        assert (one.n_listeners, one.n_ratings) == (12, 60)
    # listeners differ by taste: the interval must be as wide as theirs, not as that of 60 ratings
    spread = ratings[:, :, 1].mean(1).std(ddof=1) / math.sqrt(12)
    assert summaries[1].mean_high - summaries[1].mean_low == pytest.approx(3.9 * spread, rel=0.35)
    gone = m.summarise(np.full((3, 2, 1), np.nan))[0]
    assert gone.n_ratings == 0
    assert math.isnan(gone.mean)


def test_screening_by_the_hidden_reference() -> None:
    ratings = np.full((3, 20, 2), 50.0)
    ratings[:, :, 0] = 100
    ratings[1, :3, 0] = 89  # 15%: allowed
    ratings[2, :4, 0] = 89  # 20%: out
    found = m.screen(ratings, 0)
    np.testing.assert_array_equal(found.out, [False, False, True])
    np.testing.assert_allclose(found.missed_reference, [0, 0.15, 0.2])
    assert np.isnan(found.unheard_anchor).all()
    # on a scale of 1 to 5 the threshold is 1 + 0.9 × 4 = 4.6
    found = m.screen(np.array([[[5.0]], [[4.0]]]), 0, low=1, high=5)
    np.testing.assert_array_equal(found.out, [False, True])


def test_screening_by_the_mid_anchor_and_its_exception() -> None:
    ratings = np.full((8, 20, 2), 50.0)
    ratings[:, :, 0] = 100
    ratings[1, :3, 1] = 91  # 15%: allowed
    ratings[2, :4, 1] = 91  # 20%: out
    ratings[3:6, 10:14, 1] = 95  # three of eight listeners: these trials were hardly filtered
    found = m.screen(ratings, 0, mid_anchor=1)
    # trial 0 to 2 have two of eight above 90, which is not more than 25%
    assert np.flatnonzero(found.excused).tolist() == [10, 11, 12, 13]
    assert np.flatnonzero(found.out).tolist() == [1, 2]  # 3 and 4 of the 16 trials that count
    np.testing.assert_allclose(found.unheard_anchor[:4], [0, 3 / 16, 4 / 16, 0])
    assert not m.screen(ratings, 0).out.any()


def test_bad_input() -> None:
    with pytest.raises(InputError, match="rating 101 of listener 0, trial 1"):
        m.validate(np.array([[[50.0], [101.0]]]), 0, 100)
    with pytest.raises(InputError, match="no rating"):
        m.validate(np.full((2, 2, 2), np.nan), 0, 100)
    with pytest.raises(InputError, match="no length"):
        m.validate(np.zeros((1, 1, 1)), 5, 5)
    with pytest.raises(InputError, match="listener, trial, system"):
        m.validate(np.zeros((2, 2)), 0, 1)
    alone = m.pairwise(np.array([[[1.0, 2.0]]]))[0]
    assert math.isnan(alone.p)
    same = m.pairwise(np.ones((4, 2, 2)))[0]
    assert (same.p, same.rank_biserial) == (1.0, 0.0)
