"""Classification scores against scikit-learn and torchmetrics, alone and on every resample."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torchmetrics.functional.classification import multiclass_calibration_error

from residual_audio.errors import InputError
from residual_audio.metrics import classification as c
from residual_audio.metrics.bootstrap import resample_counts
from residual_audio.metrics.calibration import expected_calibration_error


@pytest.fixture
def scored() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 6, size=80)
    scores = rng.normal(size=(80, 6)) + 1.0 * np.eye(6)[labels]
    return np.round(scores, 1), labels  # rounded: ties must be handled too


def test_true_rank_counts_ties_against() -> None:
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 5.0, 9.0]])
    np.testing.assert_array_equal(c.true_rank(scores, np.array([0, 0, 2, 0])), [1, 2, 3, 3])


def test_macro_f1_equals_sklearn_on_every_resample(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    predictions = scores.argmax(1)
    counts = resample_counts(80, 20, np.random.default_rng(1)).astype(float)
    ours = c.macro_f1(labels, predictions, 6, counts)
    for row, value in zip(counts, ours, strict=True):
        i = np.repeat(np.arange(80), row.astype(int))
        assert value == pytest.approx(f1_score(labels[i], predictions[i], average="macro"))


def test_mean_average_precision_equals_sklearn(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    counts = resample_counts(80, 10, np.random.default_rng(2)).astype(float)
    ours = c.mean_average_precision(scores, labels, counts)
    for row, value in zip(counts, ours, strict=True):
        i = np.repeat(np.arange(80), row.astype(int))
        expected = [
            average_precision_score(labels[i] == k, scores[i, k])
            for k in range(6)
            if (labels[i] == k).any()
        ]
        assert value == pytest.approx(np.mean(expected))


def test_calibration_equals_torchmetrics(scored: tuple[np.ndarray, np.ndarray]) -> None:
    scores, labels = scored
    p = c.softmax(scores, 2.0)
    np.testing.assert_allclose(p.sum(1), 1)
    expected = multiclass_calibration_error(
        torch.tensor(p), torch.tensor(labels), num_classes=6, n_bins=15
    )
    assert expected_calibration_error(p, labels)[0] == pytest.approx(float(expected), abs=1e-6)


def test_confusion_and_per_class(scored: tuple[np.ndarray, np.ndarray]) -> None:
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    scores, labels = scored
    predictions = scores.argmax(1)
    ours = c.confusion_matrix(labels, predictions, 6)
    np.testing.assert_array_equal(ours, confusion_matrix(labels, predictions))
    table = c.per_class(ours)
    expected = precision_recall_fscore_support(labels, predictions)
    for name, column in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        np.testing.assert_allclose(table[name], column)


def test_chance_levels_are_what_random_scores_get() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat(np.arange(5), [40, 30, 15, 10, 5])
    f1, ap, top1 = [], [], []
    for _ in range(400):
        scores = rng.random((100, 5))
        f1.append(c.macro_f1(labels, scores.argmax(1), 5)[0])
        ap.append(c.mean_average_precision(scores, labels)[0])
        top1.append((c.true_rank(scores, labels) == 1).mean())
    expected = np.mean([c.chance_average_precision(100, int(n)) for n in np.bincount(labels)])
    assert np.mean(ap) == pytest.approx(expected, abs=0.004)
    assert np.mean(f1) == pytest.approx(c.chance_macro_f1(labels, 5), abs=0.01)
    assert np.mean(top1) == pytest.approx(0.2, abs=0.01)


def test_nonsense_is_refused() -> None:
    ok = np.zeros((2, 3))
    with pytest.raises(InputError, match="no labelled item"):
        c.validate(np.zeros((0, 3)), np.zeros(0, int))
    with pytest.raises(InputError, match="labels run from 0 to 3"):
        c.validate(ok, np.array([0, 3]))
    with pytest.raises(InputError, match="item 1 for class 2"):
        c.validate(np.array([[0, 0, 0], [0, 0, np.nan]]), np.array([0, 1]))
    with pytest.raises(InputError, match=r"\[n, c\]"):
        c.validate(ok, np.zeros(3, int))
