"""Separability: scikit-learn and definitions as oracles, invariances, no leak between folds."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import silhouette_score

from residual_audio.errors import InputError
from residual_audio.metrics import separability as sep


def labelled(seed: int = 0, gap: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 5, size=120)
    x = rng.normal(size=(3, 120, 6)) + gap * rng.normal(size=(3, 5, 6))[:, codes]
    return x, codes


def test_fisher_by_definition() -> None:
    x, codes = labelled()
    for h in range(3):
        between, within = np.zeros((6, 6)), np.zeros((6, 6))
        for c in range(5):
            members = x[h, codes == c]
            shift = members.mean(0) - x[h].mean(0)
            between += len(members) * np.outer(shift, shift)
            within += (members - members.mean(0)).T @ (members - members.mean(0))
        trace = np.trace(between) / np.trace(within)
        ratio = (np.diag(between) / np.diag(within)).mean()
        assert sep.fisher(x, codes)[h] == pytest.approx(trace, rel=1e-12)
        assert sep.fisher(x, codes, "mean_ratio")[h] == pytest.approx(ratio, rel=1e-12)


def test_fisher_trace_ignores_rotation_shift_and_scale() -> None:
    x, codes = labelled()
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    np.testing.assert_allclose(sep.fisher(1e6 * (x @ rotation) + 3, codes), sep.fisher(x, codes))
    assert np.isnan(sep.fisher(np.full((1, 120, 6), 3.3), codes)).all()
    assert np.isinf(sep.fisher(codes[None, :, None].astype(float), codes)).all()


def test_silhouette_equals_scikit_learn() -> None:
    x, codes = labelled(2, gap=2.0)
    expected = [silhouette_score(head, codes) for head in x]
    np.testing.assert_allclose(sep.silhouette(x, codes), expected, rtol=1e-9)
    codes[0] = 5  # a class of one
    expected = [silhouette_score(head, codes) for head in x]
    np.testing.assert_allclose(sep.silhouette(x, codes), expected, rtol=1e-9)


def test_probe_equals_ridge_regression() -> None:
    x, codes = labelled(3, gap=1.5)
    folds = np.arange(120) % 4
    ours = sep.linear_probe(x, codes, folds, ridge=0.1)
    for h in range(3):
        for fold in range(4):
            train = folds != fold
            centred = x[h, train] - x[h, train].mean(0)
            alpha = 0.1 * np.trace(centred.T @ centred) / 6
            oracle = Ridge(alpha=alpha).fit(x[h, train], np.eye(5)[codes[train]])
            hits = oracle.predict(x[h, ~train]).argmax(1) == codes[~train]
            np.testing.assert_array_equal(ours.correct[h, ~train], hits)
    np.testing.assert_allclose(ours.accuracy, ours.correct.mean(1))
    assert ours.chance == pytest.approx(np.bincount(codes).max() / 120)
    scaled = sep.linear_probe(1e9 * x + 5, codes, folds, ridge=0.1)
    np.testing.assert_array_equal(scaled.correct, ours.correct)


def test_probe_cannot_see_the_fold_it_is_tested_on() -> None:
    # labels that are unique to a fold can only be right if the test clips leaked into the fit
    rng = np.random.default_rng(4)
    folds = np.repeat([0, 1], 50)
    x = np.concatenate([rng.normal(size=(50, 3)) - 9, rng.normal(size=(50, 3)) + 9])
    assert sep.linear_probe(x, folds.copy(), folds).accuracy[0] == 0.0
    constant = sep.linear_probe(
        np.zeros((100, 3)), np.r_[np.zeros(70, int), np.ones(30, int)], np.arange(100) % 2
    )
    assert constant.accuracy[0] == pytest.approx(0.7)


def test_activation_and_selectivity() -> None:
    codes = np.array([0, 0, 1, 2])
    x = np.array([[[3.0, 4.0], [0.0, 5.0], [1.0, 0.0], [0.0, 1.0]]])
    activation = sep.class_activation(x, codes)
    np.testing.assert_allclose(activation, [[5, 1, 1]])
    value, best = sep.selectivity(activation)
    np.testing.assert_allclose(value, [4 / 6])
    assert best.tolist() == [0]
    centred = sep.class_activation(x + 1000, codes, centre=True)
    np.testing.assert_allclose(centred, sep.class_activation(x, codes, centre=True))
    names, found = sep.class_codes(["rain", "dog", "rain"])
    assert names == ("dog", "rain")
    assert found.tolist() == [1, 0, 1]


def test_nonsense_is_refused() -> None:
    x, codes = labelled()
    with pytest.raises(InputError, match="two classes"):
        sep.fisher(x, np.zeros(120, int))
    with pytest.raises(InputError, match="119 class codes"):
        sep.silhouette(x, codes[:-1])
    with pytest.raises(InputError, match="two folds"):
        sep.linear_probe(x, codes, np.zeros(120))
    with pytest.raises(InputError, match="'ratio'"):
        sep.fisher(x, codes, "ratio")  # type: ignore[arg-type]
