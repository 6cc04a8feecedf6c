"""Divergences of folders of pieces: intervals that hold their estimate, a null that holds."""

import numpy as np
import pytest

from residual_audio.generation.pieces import _difference, _kinds, divergence
from residual_audio.metrics.symbolic import inter_onset_entropy, kl_divergence_any_key

KL = _kinds(1e-3)["pitch_class_kl"]


def folder(rng: np.random.Generator, n: int, tilt: float = 0.0) -> np.ndarray:
    """Histograms of n pieces; the first pitch classes are the more common the larger `tilt`."""
    return rng.dirichlet(np.linspace(1 + tilt, 1, 12), n)


def test_the_null_of_equal_folders_holds_its_level():
    rng, p, values, nulls = np.random.default_rng(0), [], [], []
    for _ in range(80):
        found = divergence(KL, folder(rng, 8), folder(rng, 8), rng=rng, n_resamples=60)
        assert found.low <= found.value <= found.high
        p.append(found.p)
        values.append(found.value)
        nulls.append(found.null)
    assert np.mean(np.array(p) <= 0.05) <= 0.12
    # far from 0 with nothing to find
    assert np.mean(values) > 0.05
    assert np.mean(values) == pytest.approx(np.mean(nulls), rel=0.15)


def test_intervals_hold_the_expected_divergence_of_different_folders():
    rng, covered, n = np.random.default_rng(1), 0, 60
    truth = np.mean([KL(folder(rng, 20).mean(0), folder(rng, 20, 6).mean(0)) for _ in range(300)])
    for _ in range(n):
        found = divergence(KL, folder(rng, 20), folder(rng, 20, 6), rng=rng, n_resamples=60)
        assert found.low <= found.value <= found.high
        covered += found.low <= truth <= found.high
    assert covered / n >= 0.9
    assert found.p <= 1 / 30


def test_differences_of_means_cover_with_few_pieces():
    rng, covered, n = np.random.default_rng(2), 0, 500
    for _ in range(n):
        score = _difference("x", rng.normal(0, 1, 8), rng.normal(1, 3, 12))
        covered += score.low <= 1 <= score.high
    assert 0.93 <= covered / n <= 0.97


def test_an_even_pulse_of_32nds_has_no_entropy():
    notes = np.array([[i / 8, 0.1, 60] for i in range(33)])
    assert inter_onset_entropy(notes) == 0
    triplets = np.array([[i / 6, 0.1, 60] for i in range(33)])
    assert inter_onset_entropy(triplets) == 0


def test_any_key_is_the_least_of_twelve():
    p, q = np.random.default_rng(3).dirichlet(np.ones(12), 2)
    assert kl_divergence_any_key(p, np.roll(p, 5)) == pytest.approx(0, abs=1e-12)
    assert kl_divergence_any_key(p, q) == pytest.approx(
        min(KL(p, np.roll(q, s)) for s in range(12))
    )
    assert kl_divergence_any_key(p, q, 0.0) == pytest.approx(
        min(_kinds(0.0)["pitch_class_kl"](p, np.roll(q, s)) for s in range(12))
    )
