"""Attention maps, tokens, kernels and descriptions: definitions, exact sums, known shapes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA, KernelPCA

from residual_audio.errors import InputError
from residual_audio.metrics import attention_maps as attention
from residual_audio.metrics import kernels, pursuit, tensor
from residual_audio.metrics.spectra import eigenspectrum, participation_ratio, shares


def token_split(h: np.ndarray) -> np.ndarray:
    """Variance of one head's tokens inside each clip: [clip, time, frequency, d] → [clip, 3].

    With m the clip's mean, m_t and m_f its means at each time and frequency,

        mean ‖h − m‖² = mean_t ‖m_t − m‖² + mean_f ‖m_f − m‖² + mean ‖h − m_t − m_f + m‖²,

    the parts for time, frequency and rest (their interaction), exactly.
    """
    mean = h.mean(axis=(1, 2), keepdims=True)
    time = h.mean(axis=2, keepdims=True) - mean
    frequency = h.mean(axis=1, keepdims=True) - mean
    rest = h - mean - time - frequency
    return np.stack([(part**2).sum(-1).mean(axis=(1, 2)) for part in (time, frequency, rest)], 1)


def maps(n: int = 40, heads: int = 3, tokens: int = 16, seed: int = 0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(n, heads, tokens, tokens)) * 2
    p = np.exp(logits)
    return p / p.sum(-1, keepdims=True)


def test_map_dimension_equals_pca_of_flattened_maps() -> None:
    p = maps()
    found = attention.map_dimensions(p)
    for h in range(3):
        ratio = PCA().fit(p[:, h].reshape(40, -1)).explained_variance_ratio_
        assert found["pca_99"][h] == np.argmax(np.cumsum(ratio) >= 0.99) + 1
        assert found["pr"][h] == pytest.approx(1 / (ratio**2).sum(), rel=1e-9)
    half = attention.map_dimensions(p.astype(np.float16))
    np.testing.assert_allclose(half["pr"], found["pr"], rtol=1e-2)


def test_sample_size_alone_moves_the_dimension_of_maps() -> None:
    rng = np.random.default_rng(0)
    grams = attention.map_grams(maps(200))
    found = attention.dimension_against_sample(grams, (10, 50, 200, 999), rng)
    assert list(found) == [10, 50, 200]
    pr = [found[n]["pr"].mean() for n in found]
    assert pr[0] < pr[1] < pr[2]
    assert found[10]["pca_99"].max() <= 9


def test_window_means_are_taken_out() -> None:
    p = maps(40)
    windows = np.arange(40) % 4
    windows[7] = 9  # seen once: cannot be told from its own mean
    masks = np.random.default_rng(0).normal(size=(10, 1, 16, 16)) * 100
    masked = p + masks[windows]
    assert attention.map_dimensions(masked)["pr"].max() < 5
    found = attention.dimensions_within_windows(attention.map_grams(masked), windows)
    kept = np.flatnonzero(windows != 9)
    centred = np.stack([p[i] - p[kept][windows[kept] == windows[i]].mean(0) for i in kept])
    values = np.linalg.svd(centred[:, 1].reshape(39, -1), compute_uv=False) ** 2
    assert found["pr"][1] == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=1e-6)
    assert found["pca_99"].max() <= 39 - 4


def test_variance_splits_exactly() -> None:
    rng = np.random.default_rng(1)
    h = sum(rng.normal(size=size) for size in ((7, 8, 4, 5), (7, 1, 1, 5), (7, 8, 1, 5)))
    split = token_split(h)
    within = ((h - h.mean(axis=(1, 2), keepdims=True)) ** 2).sum(-1).mean(axis=(1, 2))
    np.testing.assert_allclose(split.sum(1), within, rtol=1e-12)
    found = tensor.variance_shares(h.mean(axis=(1, 2))[None], split[None])[0]
    total = ((h - h.mean(axis=(0, 1, 2))) ** 2).sum(-1).mean()
    np.testing.assert_allclose(found.sum(), 1)
    np.testing.assert_allclose(found[1:], split.mean(0) / total)


def test_higher_order_svd_rebuilds_and_finds_the_ranks() -> None:
    rng = np.random.default_rng(3)
    factors = [rng.normal(size=(size, rank)) for size, rank in ((6, 2), (8, 3), (4, 1), (5, 2))]
    core = rng.normal(size=(2, 3, 1, 2))
    x = np.einsum("abcd,ia,jb,kc,ld->ijkl", core, *factors)
    x -= x.mean(axis=(0, 1, 2))
    found = tensor.higher_order_svd(x)
    u = found.factors
    rebuilt = np.einsum(
        "abcd,ia,jb,kc,ld->ijkl", found.core, u["clip"], u["time"], u["frequency"], u["channel"]
    )
    np.testing.assert_allclose(rebuilt, x, atol=1e-10)
    for values in found.values.values():
        assert values.sum() == pytest.approx((x**2).sum())
    ranks = found.rank(1 - 1e-9)
    assert (ranks["time"], ranks["channel"]) == (4, 2)  # one more: the mean that was taken out
    assert found.kept(1.0) == pytest.approx(1)
    assert found.kept(0.9) > 0.6
    assert found.participation()["channel"] <= 2 + 1e-9
    with pytest.raises(InputError, match="constant"):
        tensor.higher_order_svd(np.ones((2, 2, 2, 2)))


def test_kernel_spectrum_equals_kernel_pca() -> None:
    x = np.random.default_rng(4).normal(size=(60, 5))
    epsilon = kernels.median_bandwidth(kernels.squared_distances(x))
    oracle = KernelPCA(kernel="rbf", gamma=1 / epsilon).fit(x)
    ours = kernels.kernel_pca_spectrum(x)
    np.testing.assert_allclose(ours[:20] * 59, oracle.eigenvalues_[:20], rtol=1e-8)
    wide = shares(kernels.kernel_pca_spectrum(x, 1e6))[:5]
    np.testing.assert_allclose(wide, shares(eigenspectrum(x))[0], rtol=1e-3)
    assert np.isnan(kernels.kernel_pca_spectrum(np.ones((5, 2)))).all()


def test_kernel_dimension_of_known_shapes() -> None:
    rng = np.random.default_rng(5)
    for d, low, high in ((1, 0.8, 1.3), (2, 1.6, 2.5), (5, 3.5, 6)):
        x = rng.normal(size=(600, d + 1))
        x = np.pad(x / np.linalg.norm(x, axis=1, keepdims=True), ((0, 0), (0, 10)))
        assert low < kernels.kernel_dimension(x).dimension < high
        assert kernels.kernel_dimension(1e20 * x).dimension == pytest.approx(
            kernels.kernel_dimension(x).dimension, rel=1e-6
        )
    assert np.isnan(kernels.kernel_dimension(np.ones((30, 3))).dimension)


def test_pursuit_finds_the_parts_of_a_sum() -> None:
    rng = np.random.default_rng(7)
    dictionary = pursuit.centre_dictionary(rng.normal(size=(200, 64)) + 3)
    np.testing.assert_allclose(np.linalg.norm(dictionary, axis=1), 1)
    target = 3 * dictionary[17] + 2 * dictionary[5] + dictionary[101]
    found = pursuit.matching_pursuit(target, dictionary, 3)
    assert found.entries == (17, 5, 101)
    np.testing.assert_allclose(np.array(found.weights) * np.linalg.norm(target), [3, 2, 1])
    assert found.fit == pytest.approx(1)
    draws = pursuit.random_directions(dictionary, 50, rng)
    null = np.array([pursuit.matching_pursuit(v, dictionary, 3).fit for v in draws])
    assert null.max() < 0.9
    assert found.fit > null.mean() + 5 * null.std()


def test_directions_with_a_name_are_coherent() -> None:
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(100, 32))
    rows[:6] = rows[0] + 0.3 * rng.normal(size=(6, 32))  # six ways to say one thing
    dictionary = pursuit.centre_dictionary(rows)
    draws = pursuit.random_directions(dictionary, 50, rng)
    chance = [pursuit.coherence(v, dictionary) for v in draws]
    assert pursuit.coherence(dictionary[0], dictionary) > 0.7 > np.quantile(chance, 0.8)


def test_pursuit_never_subtracts() -> None:
    dictionary = np.eye(3)
    found = pursuit.matching_pursuit(np.array([1.0, -1.0, 0.0]), dictionary, 3)
    assert found.entries == (0,)
    assert found.fit == pytest.approx(np.sqrt(0.5))
    assert pursuit.matching_pursuit(-np.ones(3), dictionary).entries == ()
    assert np.isnan(pursuit.matching_pursuit(np.zeros(3), dictionary).fit)
    assert np.isnan(pursuit.coherence(np.ones(3), dictionary, 1))
    assert pursuit.coherence(np.array([1.0, 1.0, 0.0]), dictionary, 2) == pytest.approx(0)
    with pytest.raises(InputError, match="cannot describe"):
        pursuit.matching_pursuit(np.ones(4), dictionary)


def test_participation_of_flat_spectra_is_their_size() -> None:
    assert participation_ratio(np.ones((1, 7)))[0] == pytest.approx(7)
