"""Intervals cover as often as they say; tests agree with scipy and statsmodels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from residual_audio.errors import InputError
from residual_audio.metrics import uncertainty
from residual_audio.metrics.proportions import wilson


def test_wilson_equals_statsmodels() -> None:
    for hits, n in [(0, 5), (5, 5), (7, 40), (200, 400)]:
        expected = proportion_confint(hits, n, method="wilson")
        np.testing.assert_allclose(wilson(hits, n), expected, atol=1e-12)
    assert wilson(2, 400)[0] < proportion_confint(2, 400, method="wilson")[0]
    assert math.isnan(wilson(0, 0)[0])
    with pytest.raises(InputError, match="6 successes of 5"):
        wilson(6, 5)


def test_mean_interval_covers_when_groups_repeat() -> None:
    rng = np.random.default_rng(0)
    hit_grouped = hit_plain = 0
    for trial in range(150):
        per_group = rng.random(30) < 0.6
        values = np.repeat(per_group, 5).astype(float)
        groups = np.repeat(np.arange(30), 5)
        low, high = uncertainty.mean_interval(values, groups=groups, seed=trial, n_resamples=300)
        hit_grouped += low <= 0.6 <= high
        low, high = uncertainty.mean_interval(values, seed=trial, n_resamples=300)
        hit_plain += low <= 0.6 <= high
    assert hit_grouped / 150 > 0.88
    assert hit_plain / 150 < 0.75  # ignoring groups promises too much


def test_all_right_still_has_an_interval() -> None:
    low, high = uncertainty.mean_interval(np.ones(20))
    assert (low, high) == wilson(20, 20)
    grouped = uncertainty.mean_interval(np.ones(20), groups=np.repeat(np.arange(4), 5))
    assert grouped == wilson(4, 4)
    assert all(math.isnan(v) for v in uncertainty.mean_interval(np.ones(9), groups=["a"] * 9))


def test_same_seed_same_interval_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).normal(size=50)
    first = uncertainty.mean_interval(x, seed=3)
    assert first == uncertainty.mean_interval(x, seed=3)
    assert first != uncertainty.mean_interval(x, seed=4)
    monkeypatch.setattr(uncertainty, "_CHUNK", 50 * 64)
    assert first == pytest.approx(uncertainty.mean_interval(x, seed=3), rel=1e-12)


def test_nan_items_are_left_out_with_their_groups() -> None:
    x = np.array([1.0, 2.0, 3.0, np.nan])
    expected = uncertainty.mean_interval(x[:3], groups=["a", "b", "c"], seed=0)
    assert uncertainty.mean_interval(x, groups=["a", "b", "c", "d"], seed=0) == expected


def test_paired_difference_sees_what_unpaired_intervals_hide() -> None:
    rng = np.random.default_rng(2)
    base = rng.normal(size=200)
    found = uncertainty.paired_difference(base + 0.05 + 0.02 * rng.normal(size=200), base)
    assert found.low > 0
    assert found.p < 0.01
    same = uncertainty.paired_difference(base, base)
    assert (same.value, same.p) == (0.0, 1.0)
    with pytest.raises(InputError, match="one length"):
        uncertainty.paired_difference(base, base[:3])


def test_paired_difference_is_calibrated_under_no_difference() -> None:
    rng = np.random.default_rng(3)
    p = [
        uncertainty.paired_difference(rng.normal(size=60), rng.normal(size=60), n_resamples=400).p
        for _ in range(150)
    ]
    assert 0.01 <= np.mean(np.array(p) < 0.05) <= 0.12


@pytest.mark.parametrize("method", ["spearman", "pearson"])
def test_correlation_equals_scipy(method: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=7)
    y = x + rng.normal(size=7)
    found = uncertainty.correlation(x, y, method)  # type: ignore[arg-type]
    test = stats.spearmanr if method == "spearman" else stats.pearsonr
    assert found.value == pytest.approx(test(x, y)[0])
    assert found.p == pytest.approx(test(x, y)[1])
    # 7! orders are all tried, as scipy does when it is asked to
    exact = stats.permutation_test(
        (x,),
        lambda a: abs(test(a, y)[0]),
        permutation_type="pairings",
        alternative="greater",
        n_resamples=np.inf,
    )
    assert found.p_permutation == pytest.approx(exact.pvalue, abs=1e-12)


def test_permutation_p_beyond_enumeration_is_close_to_the_test() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=40)
    y = 0.3 * x + rng.normal(size=40)
    found = uncertainty.correlation(x, y, "pearson", n_permutations=20_000, seed=0)
    assert found.p_permutation == pytest.approx(found.p, abs=0.01)


def test_correlation_without_meaning_is_nan() -> None:
    assert math.isnan(uncertainty.correlation([1, 2], [3, 4]).value)  # type: ignore[arg-type]
    assert math.isnan(uncertainty.correlation(np.ones(5), np.arange(5)).value)
    ignored = uncertainty.correlation(np.array([1, 2, 3, 4, np.nan]), np.arange(5.0))
    assert ignored.n == 4
    with pytest.raises(InputError, match="kendall"):
        uncertainty.correlation(np.arange(5), np.arange(5), "kendall")  # type: ignore[arg-type]


def test_holm_equals_statsmodels() -> None:
    p = np.array([0.04, 0.001, 0.02, 0.5, 0.02])
    np.testing.assert_allclose(uncertainty.holm(p), multipletests(p, method="holm")[1])
    with_gap = uncertainty.holm([0.01, np.nan, 0.04])
    np.testing.assert_allclose(with_gap, [0.02, np.nan, 0.04])


def test_fdr_equals_scipy_and_leaves_nan_out():
    p = np.random.default_rng(0).random(40) ** 3
    np.testing.assert_allclose(uncertainty.fdr(p), stats.false_discovery_control(p))
    q = uncertainty.fdr([0.01, np.nan, 0.2])
    np.testing.assert_allclose(q, [0.02, np.nan, 0.2])


def test_fdr_holds_its_level_where_a_fifth_of_the_effects_is_real():
    """Share of false ones among those declared at q ≤ 0.1, over many studies of sign-flip tests."""
    rng = np.random.default_rng(1)
    shares, found = [], []
    for study in range(60):
        real = np.arange(50) < 10
        values = rng.normal(size=(40, 50)) + 0.8 * real
        q = uncertainty.fdr(uncertainty.sign_flip(values, n_flips=2000, seed=study))
        declared = q <= 0.1
        shares.append((declared & ~real).sum() / max(1, declared.sum()))
        found.append((declared & real).sum() / 10)
    assert np.mean(shares) < 0.1 + 3 * np.std(shares) / len(shares) ** 0.5
    assert np.mean(shares) > 0.03  # the level is used, not only kept
    assert np.mean(found) > 0.8


def test_sign_flip_is_exact_for_few_groups_and_flips_whole_groups():
    # 5 groups, all positive: 2 of 32 sign patterns reach the sum
    assert uncertainty.sign_flip(np.arange(1.0, 6.0)) == 2 / 32
    twice = np.repeat(np.arange(1.0, 6.0), 2)
    assert uncertainty.sign_flip(twice, groups=np.repeat(np.arange(5), 2)) == 2 / 32
    assert np.isnan(uncertainty.sign_flip(np.ones(3), groups=["a"] * 3))
    assert uncertainty.sign_flip(np.zeros(4)) == 1.0
    p = np.array(
        [uncertainty.sign_flip(np.random.default_rng(s).normal(size=12)) for s in range(200)]
    )
    assert 0.01 < (p <= 0.05).mean() < 0.09
