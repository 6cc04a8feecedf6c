"""Statistics: SciPy and statsmodels as oracles, and what happens with too little data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multicomp import pairwise_tukeyhsd
from statsmodels.stats.oneway import anova_oneway
from statsmodels.stats.weightstats import ttest_ind

from residual_audio.errors import InputError
from residual_audio.metrics import statistics as ours


@pytest.fixture
def groups() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "s0": rng.normal(2, 1, 8),
        "s1": rng.normal(3, 2, 16),
        "s2": rng.normal(5, 1, 96),
        "s3": rng.normal(5.2, 0.5, 64),
    }


def test_anova(groups: dict[str, np.ndarray]) -> None:
    found = ours.anova(groups)
    scipy = stats.f_oneway(*groups.values())
    oracle = anova_oneway(
        np.concatenate(list(groups.values())),
        np.repeat(list(groups), [len(g) for g in groups.values()]),
        use_var="equal",
    )
    assert found.f == pytest.approx(scipy.statistic, rel=1e-10)
    assert found.f == pytest.approx(oracle.statistic, rel=1e-10)
    assert found.p == pytest.approx(scipy.pvalue, rel=1e-6)
    assert (found.df_between, found.df_within, found.n) == (3, 180, 184)
    assert found.eta_squared == pytest.approx(3 * found.f / (3 * found.f + 180))


def test_pairs(groups: dict[str, np.ndarray]) -> None:
    found = ours.compare_pairs(groups)
    values = np.concatenate(list(groups.values()))
    names = np.repeat(list(groups), [len(g) for g in groups.values()])
    oracle = pairwise_tukeyhsd(values, names)
    assert [(p.a, p.b) for p in found] == [
        ("s0", "s1"),
        ("s0", "s2"),
        ("s0", "s3"),
        ("s1", "s2"),
        ("s1", "s3"),
        ("s2", "s3"),
    ]
    for i, pair in enumerate(found):
        a, b = groups[pair.a], groups[pair.b]
        assert pair.difference == pytest.approx(oracle.meandiffs[i], rel=1e-9)
        assert pair.tukey_p == pytest.approx(oracle.pvalues[i], abs=1e-4)
        assert pair.tukey_low == pytest.approx(oracle.confint[i, 0], abs=1e-3)
        assert pair.tukey_high == pytest.approx(oracle.confint[i, 1], abs=1e-3)
        t, p, _ = ttest_ind(b, a, usevar="unequal")
        assert pair.welch_t == pytest.approx(t, rel=1e-9)
        assert pair.welch_p == pytest.approx(p, rel=1e-6)
        assert pair.bonferroni_p == pytest.approx(min(1, 6 * p), rel=1e-6)


@pytest.mark.parametrize(("k", "df"), [(2, 5), (3, 10), (4, 180), (8, 1000)])
def test_studentized_range(k: int, df: int) -> None:
    for q in (0.1, 1.0, 3.5, 6.0):
        expected = stats.studentized_range.sf(q, k, df)
        assert ours.studentized_range_sf(q, k, df) == pytest.approx(expected, abs=1e-8)


def test_tukey_equals_scipy(groups: dict[str, np.ndarray]) -> None:
    oracle = stats.tukey_hsd(*groups.values())
    interval = oracle.confidence_interval(0.95)
    index = {name: i for i, name in enumerate(groups)}
    for pair in ours.compare_pairs(groups):
        i, j = index[pair.a], index[pair.b]
        assert pair.tukey_p == pytest.approx(oracle.pvalue[i, j], abs=1e-8)
        assert pair.tukey_low == pytest.approx(interval.low[j, i], rel=1e-5)
        assert pair.tukey_high == pytest.approx(interval.high[j, i], rel=1e-5)


def test_effect_size_by_hand() -> None:
    assert ours.cohen_d(np.array([1.0, 3]), np.array([4.0, 6])) == pytest.approx(3 / np.sqrt(2))
    assert np.isnan(ours.cohen_d(np.array([1.0]), np.array([4.0, 6])))
    assert np.isnan(ours.cohen_d(np.ones(3), np.ones(3)))


def test_correlation() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=50)
    y = x + rng.normal(size=50)
    y[3] = np.nan
    known = np.arange(50) != 3
    found = ours.correlate(x, y)
    assert found.spearman == pytest.approx(stats.spearmanr(x[known], y[known]).statistic)
    assert found.pearson_p == pytest.approx(stats.pearsonr(x[known], y[known]).pvalue)
    assert found.n == 49
    assert np.isnan(ours.correlate(x, np.ones(50)).spearman)
    with pytest.raises(InputError, match="correlate"):
        ours.correlate(x, y[:4])


def test_degenerate_groups_give_nan_not_errors() -> None:
    assert np.isnan(ours.anova({"a": np.ones(3)}).f)
    assert np.isnan(ours.anova({"a": np.ones(3), "b": np.full(4, 2.0)}).f)
    pairs = ours.compare_pairs({"a": np.ones(3), "b": np.full(4, 2.0), "c": np.array([1.0])})
    assert len(pairs) == 1
    assert np.isnan(pairs[0].tukey_p)
    assert pairs[0].difference == 1.0
    split = ours.by_group([1.0, np.nan, 3.0], ["x", "x", "y"])
    assert split["x"].tolist() == [1.0]
    with pytest.raises(InputError, match="2 groups"):
        ours.by_group([1.0], ["a", "b"])
