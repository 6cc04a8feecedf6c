"""Geometry of the joint space: closed forms, laws, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics import cloud_shape as g


def _unit(n: int, d: int, seed: int = 0, shift: float = 0.0) -> np.ndarray:
    return g.unit_rows(np.random.default_rng(seed).normal(size=(n, d)) + shift)


def test_rank_me_known_spectra() -> None:
    assert g.rank_me(np.eye(7)) == pytest.approx(7)
    assert g.rank_me(np.ones((20, 5))) == pytest.approx(1)
    sigma = np.array([4.0, 2.0, 1.0])
    p = sigma / sigma.sum()
    q = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 3)))[0]
    assert g.rank_me(q * sigma) == pytest.approx(math.exp(stats.entropy(p)))
    x = _unit(60, 8)
    assert g.rank_me(5 * x) == pytest.approx(g.rank_me(x))
    assert g.rank_me(x) <= 8


def test_residual_energy() -> None:
    x = np.diag([3.0, 2.0, 1.0])
    found = g.residual_energy(x, (1, 2, 3, 9))
    assert found[1] == pytest.approx(5 / 14)
    assert found[2] == pytest.approx(1 / 14)
    assert found[3] == found[9] == 0
    assert math.isnan(g.residual_energy(np.zeros((3, 3)))[1])


def test_modality_gap_by_hand() -> None:
    gap = g.modality_gap(np.array([[1.0, 0], [1, 0]]), np.array([[0, 1.0]]))
    assert gap.l2 == pytest.approx(math.sqrt(2))
    assert gap.cosine == pytest.approx(0)
    assert gap.angle_deg == pytest.approx(90)
    # short centroids: a small distance with a wide angle
    spread = g.modality_gap(np.array([[1, 0.1], [-1, 0.1]]), np.array([[1, -0.1], [-1, -0.1]]))
    assert spread.l2 == pytest.approx(0.2)
    assert spread.angle_deg == pytest.approx(180)
    assert math.isnan(g.modality_gap(np.array([[1.0], [-1.0]]), np.ones((2, 1))).angle_deg)
    with pytest.raises(InputError, match="2 dimensions and text 3"):
        g.modality_gap(np.ones((2, 2)), np.ones((2, 3)))


def test_mean_cosine_and_uniformity_equal_the_double_loop() -> None:
    x = _unit(30, 5, shift=0.4)
    pairs = [(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j]
    assert g.mean_cosine(x) == pytest.approx(np.mean([a @ b for a, b in pairs]))
    expected = math.log(np.mean([math.exp(-2 * ((a - b) ** 2).sum()) for a, b in pairs]))
    assert g.uniformity(x) == pytest.approx(expected)
    assert g.uniformity(np.tile(x[:1], (9, 1))) == pytest.approx(0, abs=1e-9)
    assert g.mean_cosine(np.tile(x[:1], (9, 1))) == pytest.approx(1)
    assert math.isnan(g.uniformity(x[:1]))
    assert math.isnan(g.mean_cosine(x[:1]))


def test_alignment_and_auc() -> None:
    x = _unit(200, 16)
    assert g.alignment(x, x) == 0
    assert g.alignment(x, -x) == pytest.approx(4)
    assert g.pair_auc(x, x) == 1.0
    assert g.pair_auc(x, -x) == 0.0
    assert g.pair_auc(x, _unit(200, 16, 1)) == pytest.approx(0.5, abs=0.06)
    s = x[:20] @ _unit(20, 16, 2).T
    matched, others = np.diagonal(s), s[~np.eye(20, dtype=bool)]
    u = stats.mannwhitneyu(matched, others).statistic / (len(matched) * len(others))
    assert g.pair_auc(x[:20], _unit(20, 16, 2)) == pytest.approx(u)
    assert g.pair_auc(np.ones((5, 2)), np.ones((5, 2))) == 0.5  # constant: chance, not success


def test_mutual_neighbours_ignore_rotation_and_gap() -> None:
    x = _unit(80, 12)
    q = np.linalg.qr(np.random.default_rng(5).normal(size=(12, 12)))[0]
    assert g.mutual_neighbours(x, x @ q) == 1.0
    assert g.mutual_neighbours(x, _unit(80, 12, 7)) == pytest.approx(10 / 79, abs=0.05)
    with pytest.raises(InputError, match="80 and 79"):
        g.mutual_neighbours(x, x[:-1])


def test_hubness() -> None:
    ring = np.array([[math.cos(a), math.sin(a)] for a in np.arange(40) * math.tau / 40])
    even = g.hubness(ring, ring, k=4, same=True)
    assert (even.skewness, even.robin_hood, even.never) == (0.0, 0.0, 0.0)
    items = np.vstack([np.full((1, 2), 10.0), ring])
    hub = g.hubness(np.abs(ring), items, k=1)
    assert hub.never == pytest.approx(40 / 41)
    assert hub.robin_hood == pytest.approx(40 / 41)
    assert hub.skewness > 5
    assert math.isnan(g.hubness(ring, ring[:1]).skewness)


def test_bad_rows_are_named() -> None:
    with pytest.raises(InputError, match="audio: row 1 is not finite"):
        g.unit_rows(np.array([[1.0, 0], [np.inf, 0]]), "audio")
    with pytest.raises(InputError, match="row 1 is all zeros"):
        g.unit_rows(np.array([[1.0, 0], [0, 0]]))
    with pytest.raises(InputError, match="no row"):
        g.unit_rows(np.zeros((0, 3)))
    with pytest.raises(InputError, match=r"\[n, d\]"):
        g.unit_rows(np.zeros(3))
