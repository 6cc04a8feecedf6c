"""Spectra and moments: scikit-learn as oracle, and the laws they obey."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from residual_audio.errors import InputError
from residual_audio.metrics import spectra
from residual_audio.metrics.estimators import of_spectrum
from residual_audio.metrics.moments import Moments, merge_all
from residual_audio.metrics.validate import check_finite


def cloud(seed: int, n_heads: int = 3, n: int = 200, d: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(n_heads, d, d)) * (0.5 ** np.arange(d))
    return rng.normal(size=(n_heads, n, d)) @ np.swapaxes(mix, 1, 2) + rng.normal(
        size=(n_heads, 1, d)
    )


@pytest.mark.parametrize(("n", "d"), [(200, 12), (30, 30), (15, 40), (2, 5)])
def test_spectrum_equals_pca(n: int, d: int) -> None:
    x = cloud(0, n=n, d=d)
    ours = spectra.eigenspectrum(x)
    for h in range(len(x)):
        oracle = PCA(svd_solver="full").fit(x[h])
        k = min(n, d)
        np.testing.assert_allclose(
            ours[h, :k], oracle.explained_variance_, atol=1e-12 * ours[h, 0], rtol=1e-9
        )
        np.testing.assert_allclose(
            spectra.shares(ours)[h, :k], oracle.explained_variance_ratio_, atol=1e-12
        )


def test_metrics_by_hand() -> None:
    flat, single = np.ones(10), np.r_[3.0, np.zeros(9)]
    table = np.stack([flat, single])
    np.testing.assert_allclose(spectra.participation_ratio(table), [10, 1])
    np.testing.assert_allclose(spectra.effective_rank(table), [10, 1])
    np.testing.assert_allclose(spectra.spectral_entropy(table), [np.log(10), 0], atol=1e-15)
    np.testing.assert_array_equal(spectra.pca_dimension(table, 0.9), [9, 1])
    np.testing.assert_array_equal(spectra.pca_dimension(table, 0.91), [10, 1])
    np.testing.assert_array_equal(spectra.pca_dimension(table, 1.0), [10, 1])
    np.testing.assert_allclose(spectra.kept_share(table, 5), [0.5, 1])
    np.testing.assert_allclose(spectra.first_share(table), [0.1, 1])
    np.testing.assert_allclose(spectra.second_share(table), [0.1, 0])


def test_projection_algebra_equals_projecting() -> None:
    rng = np.random.default_rng(1)
    x, w = cloud(2), rng.normal(size=(3, 12, 96))
    explicit = spectra.eigenspectrum(x @ w)[:, :12]
    by_root = spectra.eigenspectrum(x @ spectra.isometry(w))
    np.testing.assert_allclose(by_root, explicit, rtol=1e-8, atol=1e-10)
    # rank-deficient W: no Cholesky factor, still an isometry
    w[:, 0] = w[:, 1]
    root = spectra.isometry(w)
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), w @ np.swapaxes(w, 1, 2), atol=1e-9)


def test_constant_heads_have_no_spectrum() -> None:
    x = np.stack([np.full((50, 4), 7.25), np.random.default_rng(0).normal(size=(50, 4))])
    for dtype in (np.float32, np.float64):
        columns = of_spectrum(spectra.eigenspectrum(x.astype(dtype)))
        for name, values in columns.items():
            assert np.isnan(values[0]), name
            assert np.isfinite(values[1]), name
    # differences of one unit in the last place are rounding, not signal
    noisy = np.full((50, 4), 1000.0, dtype=np.float32)
    noisy[::2] = np.nextafter(np.float32(1000), np.float32(2000))
    assert np.isnan(spectra.eigenspectrum(noisy)).all()
    assert np.isnan(spectra.eigenspectrum(np.ones((1, 4)))).all()


def test_common_offset_in_float32_moves_nothing_but_rounding() -> None:
    x = cloud(3).astype(np.float32)
    shifted = x + np.float32(1e4)
    exact = spectra.eigenspectrum(shifted.astype(np.float64))
    np.testing.assert_allclose(spectra.eigenspectrum(shifted), exact, rtol=1e-9, atol=1e-9)
    before, after = (spectra.participation_ratio(spectra.eigenspectrum(a)) for a in (x, shifted))
    np.testing.assert_allclose(before, after, rtol=1e-3)


def test_nan_is_named() -> None:
    x = cloud(4)
    x[1, 7, 3] = np.nan
    with pytest.raises(InputError, match=r"head s0\.b0\.h1, clip 'rain-7'"):
        check_finite(x, [f"s0.b0.h{i}" for i in range(3)], [f"rain-{i}" for i in range(200)])
    check_finite(np.full((1, 2, 2), 1.5e308))  # a sum that overflows is not NaN input


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e8, 1e30]),
    shift=st.floats(-100, 100),
)
def test_rotation_translation_scale_and_order_leave_dimensions_alone(
    seed: int, scale: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    x = cloud(seed, n_heads=1)
    rotation = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    moved = (rng.permutation(x[0]) @ rotation + shift) * scale
    before = of_spectrum(spectra.eigenspectrum(x))
    after = of_spectrum(spectra.eigenspectrum(moved))
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-7, atol=1e-9, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    shift=st.floats(-1e4, 1e4),
)
def test_merging_any_split_equals_the_whole(seed: int, cuts: list[int], shift: float) -> None:
    x = np.random.default_rng(seed).normal(size=(2, 60, 5)) + shift
    edges = [0, *sorted(cuts), 60]
    parts = [Moments.of(x[:, a:b]) for a, b in pairwise(edges)]
    whole = Moments.of(x)
    for merged in (merge_all(parts), merge_all(parts[::-1])):
        assert merged.n == 60
        np.testing.assert_allclose(merged.mean, whole.mean, rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(merged.scatter, whole.scatter, rtol=1e-9, atol=1e-9)


def test_moments_give_the_same_spectrum_as_the_vectors() -> None:
    x = cloud(5)
    moments = Moments.of(x)
    np.testing.assert_allclose(moments.covariance[0], np.cov(x[0].T), rtol=1e-10)
    np.testing.assert_allclose(
        spectra.spectrum_of_covariance(moments.covariance),
        spectra.eigenspectrum(x),
        rtol=1e-8,
        atol=1e-13,
    )
    assert np.isnan(Moments.of(x[:, :1]).covariance).all()
    with pytest.raises(InputError, match="merge"):
        moments.merge(Moments.of(x[:2]))


def test_fitted_spectrum_rebuilds_the_covariance() -> None:
    x = cloud(6)[0]
    fit = spectra.fit_spectrum(x)
    np.testing.assert_allclose(fit.basis @ fit.basis.T, np.eye(12), atol=1e-12)
    np.testing.assert_allclose(
        fit.basis.T @ np.diag(fit.eigenvalues) @ fit.basis, np.cov(x.T), atol=1e-10
    )
    assert fit.n == 200
    with pytest.raises(InputError, match="2 vectors"):
        spectra.fit_spectrum(x[:1])
