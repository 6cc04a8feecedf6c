"""What intervals and tests promise, simulated: coverage, level and bias."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from residual_audio.metrics import classification, compa
from residual_audio.metrics.bootstrap import bootstrap_mean, half_samples, spread_interval
from residual_audio.metrics.calibration import calibration
from residual_audio.metrics.few_groups import cluster_t
from residual_audio.metrics.proportions import change_interval
from residual_audio.metrics.spectra import eigenspectrum, participation_ratio
from residual_audio.metrics.uncertainty import (
    fdr,
    interval,
    mean_interval,
    paired_difference,
    sign_flip,
)


def uneven_groups(rng: np.random.Generator, n_groups: int) -> np.ndarray:
    return np.repeat(np.arange(n_groups), rng.integers(1, 5, n_groups))


@pytest.mark.parametrize("n_groups", [10, 30])
@pytest.mark.parametrize("share", [None, 0.5, 0.8])
def test_intervals_of_means_cover_from_ten_groups_on(n_groups: int, share: float | None):
    rng, covered, n = np.random.default_rng(n_groups), 0, 800
    for _ in range(n):
        groups = uneven_groups(rng, n_groups)
        if share is None:
            truth = 0.0
            values = rng.normal(size=n_groups)[groups] + rng.normal(size=len(groups))
        else:
            truth = share
            own = rng.beta(4 * share, 4 * (1 - share), n_groups)
            values = (rng.random(len(groups)) < own[groups]).astype(float)
        low, high = mean_interval(values, groups=groups, shares=share is not None)
        covered += low <= truth <= high
    # a share of few items moves in steps, and errs on the wide side
    assert 0.93 <= covered / n <= (0.97 if share is None else 0.99)


@pytest.mark.parametrize("n_groups", [10, 30, 100])
def test_intervals_cover_where_few_groups_hold_most_items(n_groups: int):
    """The usual formula with one degree of freedom less than groups covers 81 to 92% here."""
    rng, covered, n = np.random.default_rng(n_groups), 0, 800
    for _ in range(n):
        sizes = np.clip(np.round(2 * rng.pareto(1.2, n_groups)), 1, 40).astype(int)
        groups = np.repeat(np.arange(n_groups), sizes)
        values = rng.normal(size=n_groups)[groups] + rng.normal(size=len(groups))
        low, high = mean_interval(values, groups=groups, n_resamples=300)
        covered += low <= 0 <= high
    assert 0.92 <= covered / n <= 0.975


@pytest.mark.parametrize("n", [10, 20, 30, 50, 100, 400])
def test_intervals_of_shares_cover_up_to_the_ends(n: int):
    """Exactly, not drawn: every count that n items can show, weighed by how likely it is."""
    counts = np.arange(n + 1)
    ends = np.array([mean_interval(np.arange(n) < k) for k in counts])
    truths = np.linspace(0.002, 0.998, 250)
    inside = (ends[:, :1] <= truths) & (truths <= ends[:, 1:])
    covered = (stats.binom.pmf(counts[:, None], n, truths) * inside).sum(0)
    assert covered.min() > 0.915  # the bootstrap: 0 where p is small
    assert 0.945 <= covered.mean() <= 0.97


@pytest.mark.parametrize("n", [10, 30, 100])
@pytest.mark.parametrize(("rate", "gained"), [(0.02, 0.9), (0.05, 0.8), (0.2, 0.7), (0.5, 0.6)])
def test_intervals_of_changed_answers_cover(n: int, rate: float, gained: float):
    """Exactly again. Student's t covers 18% of the first: no change seen, 0 [0, 0]."""
    up, down = (grid.ravel() for grid in np.mgrid[: n + 1, : n + 1])
    weight = stats.multinomial.pmf(
        np.stack([up, down, n - up - down], 1), n, [rate * gained, rate * (1 - gained), 1 - rate]
    )
    kept = weight > 1e-5
    place = np.arange(n)[:, None]
    changes = (place < up[kept]) * 1.0 - ((place >= up[kept]) & (place < (up + down)[kept]))
    low, high = change_interval(changes)
    truth = rate * (2 * gained - 1)
    assert (high > low).all()
    assert weight[kept] @ ((low <= truth) & (truth <= high)) / weight[kept].sum() > 0.93


def score_of_change(delta: float, b: int, c: int, n: int) -> float:
    """The score test with the likeliest share of losses searched for, not solved for."""

    def unlikely(q: float) -> float:
        terms = ((b, q + delta), (c, q), (n - b - c, 1 - 2 * q - delta))
        return -sum(count * np.log(share) for count, share in terms if count)

    ends = (max(0.0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12)
    q = minimize_scalar(unlikely, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
    return (b - c - n * delta) / np.sqrt(n * (2 * q + delta * (1 - delta)))


@pytest.mark.parametrize(("b", "c", "n"), [(1, 0, 44), (4, 2, 30), (0, 3, 50), (10, 1, 100)])
def test_the_interval_of_changed_answers_ends_where_its_test_does(b: int, c: int, n: int):
    low, high = change_interval(np.r_[np.ones(b), -np.ones(c), np.zeros(n - b - c)])
    z = stats.norm.ppf(0.975)
    assert score_of_change(float(low), b, c, n) == pytest.approx(z, abs=1e-4)
    assert score_of_change(float(high), b, c, n) == pytest.approx(-z, abs=1e-4)


def test_intervals_of_changed_answers_cover_in_groups():
    rng, covered, n = np.random.default_rng(12), 0, 500
    for _ in range(n):
        groups = uneven_groups(rng, 20)
        own = rng.beta(0.4, 3.6, 20)[groups]
        drawn = rng.random(len(groups))
        changes = np.where(drawn < 0.8 * own, 1.0, np.where(drawn < own, -1.0, 0.0))
        low, high = change_interval(changes, groups)
        covered += low <= 0.06 <= high
    assert covered / n >= 0.93


def test_the_percentile_bootstrap_of_ten_groups_would_not_cover():
    rng, covered, n = np.random.default_rng(0), 0, 400
    for _ in range(n):
        values = rng.normal(size=10)
        means = values[rng.integers(0, 10, (400, 10))].mean(1)
        low, high = np.quantile(means, [0.025, 0.975])
        covered += low <= 0 <= high
    assert covered / n < 0.93


def test_intervals_of_other_statistics_cover_with_few_groups():
    rng, covered, n = np.random.default_rng(1), 0, 400
    for _ in range(n):
        values = rng.normal(size=15)
        low, high = interval(
            lambda w, v=values: np.sqrt(w @ v**2 / w.sum(1)), 15, seed=rng, n_resamples=400
        )
        covered += low <= 1.0 <= high
    assert covered / n > 0.90  # a percentile interval: 0.87


def test_t_over_groups_is_students_for_single_items():
    x = np.random.default_rng(2).normal(size=(12, 3))
    low, high = cluster_t(x)
    known = [stats.ttest_1samp(column, 0).confidence_interval() for column in x.T]
    np.testing.assert_allclose(low, [k.low for k in known])
    np.testing.assert_allclose(high, [k.high for k in known])
    # what many columns are bootstrapped with is the same below 50 groups, NaN left out
    x[3, 1] = np.nan
    few, _ = bootstrap_mean(x, rng=np.random.default_rng(0))
    np.testing.assert_allclose(few[0], low[0])
    left = stats.ttest_1samp(np.delete(x[:, 1], 3), 0).confidence_interval()
    assert few[1] == pytest.approx(left.low)


def test_paired_differences_hold_their_level_with_few_groups():
    rng, false, n = np.random.default_rng(3), 0, 600
    for _ in range(n):
        groups = uneven_groups(rng, 10)
        gap = rng.normal(size=10)[groups] + rng.normal(size=len(groups))
        found = paired_difference(gap, np.zeros(len(gap)), groups=groups, n_flips=2000)
        false += found.p <= 0.05
    assert false / n <= 0.075


def test_three_answers_in_one_direction_never_clear_zero():
    for n in (20, 100, 400):
        delta = np.zeros(n)
        delta[:3] = -1
        found = paired_difference(delta, np.zeros(n))
        assert found.p == 0.25
        assert found.low <= 0 <= found.high


def test_false_discoveries_stay_below_their_rate():
    rng, shares = np.random.default_rng(4), []
    for _ in range(200):
        effect = np.r_[np.full(20, 1.0), np.zeros(164)]
        delta = rng.normal(effect, 1.5, (40, 184))
        clear = fdr(sign_flip(delta, n_flips=1000, seed=rng)) <= 0.10
        shares.append((clear & (effect == 0)).sum() / max(clear.sum(), 1))
    assert np.mean(shares) <= 0.11


def test_half_samples_hold_the_estimate_and_cover_dimensions():
    """A bootstrap of this participation ratio lies below its own estimate."""
    rng, covered, n = np.random.default_rng(5), 0, 150
    scale = np.linspace(1, 2, 12)

    def ratio(x: np.ndarray) -> float:
        return float(participation_ratio(eigenspectrum(x[None]))[0])

    expected = np.mean([ratio(rng.normal(size=(80, 12)) * scale) for _ in range(400)])
    for _ in range(n):
        x = rng.normal(size=(80, 12)) * scale
        value = ratio(x)
        halves = [ratio(x[row > 0]) for row in half_samples(80, 60, rng)]
        low, high = spread_interval(np.array(value), np.array(halves), 80)
        assert low < value < high
        covered += low <= expected <= high
    assert 0.90 <= covered / n <= 1.0
    resampled = [ratio(x[rng.integers(0, 80, 80)]) for _ in range(100)]
    assert np.quantile(resampled, 0.975) < ratio(x)


def test_half_samples_keep_groups_whole_and_scale_right():
    rng = np.random.default_rng(6)
    groups = np.repeat(np.arange(9), 3)
    drawn = half_samples(27, 50, rng, groups).reshape(50, 9, 3)
    assert (drawn == drawn[:, :, :1]).all()
    assert (drawn[:, :, 0].sum(1) == 5).all()
    x = rng.normal(size=41)
    halves = [x[row > 0].mean() for row in half_samples(41, 4000, rng)]
    low, high = spread_interval(np.array(x.mean()), np.array(halves), 41)
    known = stats.ttest_1samp(x, 0).confidence_interval()
    assert (low, high) == pytest.approx((known.low, known.high), rel=0.05)


def close_pairs(rng: np.random.Generator, n: int, signal: float = 0.0) -> np.ndarray:
    """Similarities of pairs that are near each other: what they share outweighs what differs."""
    shared_text, shared_audio = rng.normal(size=(n, 2, 1)), rng.normal(size=(n, 1, 2))
    s = shared_text + shared_audio + 0.1 * rng.normal(size=(n, 2, 2))
    return s + signal * np.eye(2)


def test_close_pairs_without_information_score_far_below_independent_chance():
    rng = np.random.default_rng(7)
    found = compa.exchanged(close_pairs(rng, 4000))
    share = found["h"].right / 4000
    assert share < 0.02 < compa.chance("h")
    assert share == pytest.approx(found["h"].rate, abs=0.006)
    independent = compa.exchanged(rng.normal(size=(4000, 2, 2)))
    for name in ("f", "g", "h"):
        assert independent[name].rate == pytest.approx(compa.chance(name), abs=0.03)


def test_the_sign_test_of_exchanged_captions_holds_its_level_and_finds_signal():
    rng = np.random.default_rng(8)
    p = [compa.exchanged(close_pairs(rng, 60))["f"].p for _ in range(150)]
    assert np.mean(np.array(p) <= 0.05) <= 0.09
    assert compa.exchanged(close_pairs(rng, 200, signal=2.0))["h"].p < 0.01
    assert compa.exchanged(close_pairs(rng, 200, signal=-2.0))["h"].p < 0.01


def test_the_sign_test_of_the_published_attribute_pairs():
    """20 items right and 43 wrong throughout: worse than telling nothing apart."""
    right = np.array([[1.0, 0.0], [0.0, 1.0]])
    wrong = right[::-1]
    neither = np.array([[1.0, 0.9], [0.8, 0.7]])
    found = compa.exchanged(np.stack([right] * 20 + [wrong] * 43 + [neither] * 37))["h"]
    assert (found.right, found.wrong, found.rate) == (20, 43, 0.43)
    assert found.p == pytest.approx(stats.binomtest(20, 63).pvalue, abs=0.003)


def answers(rng: np.random.Generator, n: int, too_sure: float) -> tuple[np.ndarray, np.ndarray]:
    confidence = rng.uniform(0.5, 1.0, n)
    right = rng.random(n) < confidence - too_sure
    return np.stack([confidence, 1 - confidence], 1), np.where(right, 0, 1)


def test_calibration_error_of_a_calibrated_model_is_its_null():
    rng = np.random.default_rng(9)
    found = [calibration(*answers(rng, 100, 0.0), n_draws=60, seed=i) for i in range(120)]
    assert np.mean([f.error for f in found]) > 0.05  # not 0, with nothing wrong
    assert np.mean([f.error for f in found]) == pytest.approx(
        np.mean([f.null for f in found]), rel=0.08
    )
    assert np.mean([f.p <= 0.05 for f in found]) <= 0.11
    assert np.mean([f.debiased for f in found]) < 0.7 * np.mean([f.error for f in found])


def test_debiased_calibration_error_is_nearer_the_truth():
    rng = np.random.default_rng(10)
    found = [calibration(*answers(rng, 200, 0.15), n_draws=30, seed=i) for i in range(100)]
    bias = np.mean([f.error for f in found]) - 0.15
    left = np.mean([f.debiased for f in found]) - 0.15
    assert bias > 0
    assert abs(left) < bias


def test_mean_average_precision_of_a_random_order_is_its_chance_at_this_n():
    rng = np.random.default_rng(11)
    labels = np.repeat(np.arange(5), 4)
    found = [
        float(classification.mean_average_precision(rng.normal(size=(20, 5)), labels)[0])
        for _ in range(200)
    ]
    chance = classification.chance_average_precision(20, 4)
    assert np.mean(found) == pytest.approx(chance, abs=0.01)
    assert chance > 0.25  # above the share of a class, 0.2
