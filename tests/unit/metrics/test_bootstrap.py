"""The bootstrap: laws of resampling, and coverage against what theory says."""

from __future__ import annotations

import numpy as np
import pytest

from residual_audio.errors import InputError
from residual_audio.metrics.bootstrap import (
    bootstrap_mean,
    percentile_interval,
    resample_counts,
)


def test_each_resample_draws_as_many_items_as_there_are() -> None:
    counts = resample_counts(17, 50, np.random.default_rng(0))
    assert counts.shape == (50, 17)
    assert (counts.sum(1) == 17).all()
    assert counts.min() >= 0
    # Poisson(1)-like: about 36.8% of the items are left out of a resample
    assert abs((counts == 0).mean() - np.exp(-1)) < 0.05


def test_groups_are_drawn_whole() -> None:
    groups = ["a", "a", "b", "c", "c", "c"]
    counts = resample_counts(6, 200, np.random.default_rng(1), groups)
    assert (counts[:, 0] == counts[:, 1]).all()
    assert (counts[:, 3] == counts[:, 4]).all()
    assert (counts[:, [0, 2, 3]].sum(1) == 3).all()


def test_one_product_gives_the_mean_of_every_resample() -> None:
    x = np.random.default_rng(2).normal(size=80)
    drawn = resample_counts(80, 400, np.random.default_rng(3))
    general = percentile_interval(np.array([np.repeat(x, row).mean() for row in drawn]))
    product = bootstrap_mean(x, rng=np.random.default_rng(3), n_resamples=400)
    np.testing.assert_allclose(general, product, rtol=1e-12)


def test_interval_of_a_mean_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        low, high = bootstrap_mean(rng.normal(size=60), rng=rng, n_resamples=300)
        covered += bool(low <= 0 <= high)
    assert 0.88 <= covered / 200 <= 0.99


def test_group_bootstrap_is_wider_where_takes_repeat() -> None:
    base = np.random.default_rng(5).normal(size=40)
    values, groups = np.repeat(base, 10), np.repeat(np.arange(40), 10)
    plain = bootstrap_mean(values, rng=np.random.default_rng(6))
    grouped = bootstrap_mean(values, rng=np.random.default_rng(6), groups=groups)
    assert grouped[1] - grouped[0] > 2 * (plain[1] - plain[0])


def test_missing_values_are_left_out() -> None:
    values = np.array([[1.0, np.nan], [1.0, 2.0], [1.0, 2.0]])
    low, high = bootstrap_mean(values, rng=np.random.default_rng(7), n_resamples=50)
    np.testing.assert_allclose(low, [1.0, 2.0])
    np.testing.assert_allclose(high, [1.0, 2.0])
    assert np.isnan(percentile_interval(np.full(3, np.nan))[0])


def test_nonsense_is_refused() -> None:
    with pytest.raises(InputError, match="0 items"):
        resample_counts(0, 10, np.random.default_rng(0))
    with pytest.raises(InputError, match="3 groups"):
        resample_counts(4, 10, np.random.default_rng(0), ["a", "b", "c"])
    with pytest.raises(InputError, match="level"):
        percentile_interval(np.zeros(4), level=2)
