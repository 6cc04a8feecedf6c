"""Similarity between heads: definitions, invariances and SciPy as oracle."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cosine

from residual_audio.errors import InputError
from residual_audio.metrics import similarity as sim


def test_cosine_of_spectra() -> None:
    spectra = np.abs(np.random.default_rng(0).normal(size=(5, 8)))
    matrix = sim.spectral_cosine(spectra)
    for i in range(5):
        for j in range(5):
            assert matrix[i, j] == pytest.approx(1 - cosine(spectra[i], spectra[j]), abs=1e-12)
    np.testing.assert_allclose(sim.spectral_cosine(spectra * 1e20), matrix)
    spectra[2] = np.nan
    assert np.isnan(sim.spectral_cosine(spectra)[2]).all()


def test_ward_puts_alike_heads_together_and_missing_ones_last() -> None:
    rng = np.random.default_rng(1)
    vectors = np.concatenate([rng.normal(size=(10, 4)), rng.normal(size=(10, 4)) + 20])
    vectors[3] = np.nan
    shuffled = rng.permutation(20)
    found = sim.ward(vectors[shuffled])
    assert found.order[-1] == np.flatnonzero(shuffled == 3)[0]
    high = shuffled[found.order[:-1]] >= 10
    assert (np.diff(high.astype(int)) != 0).sum() == 1
    labels = found.labels(2)
    assert len(set(labels[shuffled[found.members] >= 10])) == 1
    assert sorted(found.order) == list(range(20))


def test_within_and_cross() -> None:
    matrix = np.array([[1, 0.9, 0.1], [0.9, 1, 0.3], [0.1, 0.3, 1]])
    found = sim.within_and_cross(matrix, np.array([0, 0, 1]))
    assert found["within"] == pytest.approx(0.9)
    assert found["cross"] == pytest.approx(0.2)
    assert found["ratio"] == pytest.approx(4.5)
    assert (found["n_within"], found["n_cross"]) == (1, 2)
    with pytest.raises(InputError, match="does not fit"):
        sim.within_and_cross(matrix, np.array([0, 1]))


def test_subspaces() -> None:
    rng = np.random.default_rng(2)
    bases = np.stack([np.linalg.qr(rng.normal(size=(20, 3)))[0].T for _ in range(4)])
    matrix = sim.subspace_similarity(bases)
    for i in range(4):
        for j in range(4):
            oracle = subspace_angles(bases[i].T, bases[j].T)
            assert matrix[i, j] == pytest.approx((np.cos(oracle) ** 2).mean(), abs=1e-10)
    mixed = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ bases[0]  # another basis, the same subspace
    assert sim.subspace_similarity(np.stack([bases[0], mixed]))[0, 1] == pytest.approx(1)


def test_cka_is_one_for_rotated_heads_and_small_for_unrelated_ones() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1000, 6)) * np.arange(1, 7)
    rotation = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    heads = np.stack([x, 1e-5 * (x @ rotation) + 7, rng.normal(size=(1000, 6)), np.ones((1000, 6))])
    matrix = sim.linear_cka(heads)
    assert matrix[0, 1] == pytest.approx(1, abs=1e-8)
    assert matrix[0, 2] < 0.05
    assert np.isnan(matrix[3]).all()
    a, b = x - x.mean(0), heads[2] - heads[2].mean(0)
    by_definition = np.linalg.norm(a.T @ b) ** 2 / (
        np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)
    )
    assert matrix[0, 2] == pytest.approx(by_definition, rel=1e-9)
