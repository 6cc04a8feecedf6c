"""Symbolic descriptors on pieces small enough to work out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from residual_audio.errors import InputError
from residual_audio.metrics import symbolic as s

C_MAJOR = np.array([[i, 1.0, p] for i, p in enumerate([60, 62, 64, 65, 67, 69, 71, 72])])


def test_pitch_class_histogram() -> None:
    by_duration = s.pitch_class_histogram(np.array([[0, 3.0, 60], [3, 1.0, 67]]))
    assert by_duration[0] == 0.75
    assert by_duration[7] == 0.25
    by_count = s.pitch_class_histogram(np.array([[0, 3.0, 60], [3, 1.0, 67]]), "count")
    assert by_count[0] == by_count[7] == 0.5
    assert np.isnan(s.pitch_class_histogram(np.empty((0, 3)))).all()


def test_entropies() -> None:
    assert s.entropy(np.ones(8)) == pytest.approx(3)
    assert s.entropy(np.array([1.0, 0])) == 0
    assert s.pitch_entropy(C_MAJOR) == pytest.approx(3)  # eight different pitches
    # C counts twice: 2/8 once, 1/8 six times
    assert s.entropy(s.pitch_class_histogram(C_MAJOR)) == pytest.approx(2.75)
    assert math.isnan(s.entropy(np.zeros(3)))


def test_inter_onset_entropy() -> None:
    even = np.array([[i * 0.5, 0.5, 60] for i in range(9)])
    assert s.inter_onset_entropy(even) == 0
    swing = np.array([[t, 0.3, 60] for t in (0, 2 / 3, 1, 5 / 3, 2)])
    np.testing.assert_allclose(s.inter_onset_intervals(swing), [2 / 3, 1 / 3, 2 / 3, 1 / 3])
    assert s.inter_onset_entropy(swing) == pytest.approx(1)
    chord = np.array([[0, 1, 60], [0, 1, 64], [1, 1, 60], [1.001, 1, 64]])
    np.testing.assert_allclose(s.inter_onset_intervals(chord), [1.0])
    assert math.isnan(s.inter_onset_entropy(C_MAJOR[:1]))
    pauses = np.array([[t, 1, 60] for t in (0, 5, 14, 30)])  # all longer than the last bin
    assert s.inter_onset_entropy(pauses) == 0


def test_kl_divergence_equals_scipy_and_declares_its_smoothing() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(12))
    assert s.kl_divergence(p, q, 0) == pytest.approx(stats.entropy(p, q, base=2))
    assert s.kl_divergence(p, p) == pytest.approx(0)
    one, other = np.eye(12)[0], np.eye(12)[7]
    assert s.kl_divergence(one, other, 0) == math.inf
    smooth = s.kl_divergence(one, other, 0.01)
    a, b = (1.01, 0.01)
    assert smooth == pytest.approx((a * math.log2(a / b) + b * math.log2(b / a)) / (1 + 12 * 0.01))
    assert s.kl_divergence_any_key(one, other) == pytest.approx(0)
    assert math.isnan(s.kl_divergence(np.full(12, np.nan), q))
    with pytest.raises(InputError, match="below 0"):
        s.kl_divergence(p, q, -1)
    with pytest.raises(InputError, match="do not compare"):
        s.kl_divergence(p, q[:5])


def test_tonal_centroid() -> None:
    # one class lies on all three circles, with radii 1, 1 and 1/2
    np.testing.assert_allclose(s.tonal_centroid(np.eye(12)[0]), [0, 1, 0, 1, 0, 0.5], atol=1e-12)
    np.testing.assert_allclose(s.tonal_centroid(np.full(12, 1 / 12)), 0, atol=1e-12)
    c, g, f_sharp = np.eye(12)[0], np.eye(12)[7], np.eye(12)[6]
    assert s.tonal_distance(c, g) < s.tonal_distance(c, f_sharp)
    assert s.tonal_distance(c, c) == 0
    # circle of fifths: 30° apart; minor thirds: 7 × 3π/2 = 90° mod 360; major thirds: 120° at 1/2
    chord = lambda r, deg: 2 * r * math.sin(math.radians(deg) / 2)  # noqa: E731
    expected = math.sqrt(chord(1, 30) ** 2 + chord(1, 90) ** 2 + chord(0.5, 120) ** 2)
    assert s.tonal_distance(c, g) == pytest.approx(expected)


def test_scale_consistency() -> None:
    assert s.scale_consistency(C_MAJOR) == 1.0
    for shift in range(12):
        assert s.scale_consistency(C_MAJOR + np.array([0, 0, shift])) == pytest.approx(1)
    chromatic = np.array([[i, 1.0, 60 + i] for i in range(12)])
    assert s.scale_consistency(chromatic) == pytest.approx(7 / 12)
    harmonic_minor = np.array([[i, 1.0, p] for i, p in enumerate([57, 59, 60, 62, 64, 65, 68])])
    assert s.scale_consistency(harmonic_minor) == pytest.approx(1)
    assert math.isnan(s.scale_consistency(np.empty((0, 3))))


def _bars(pattern: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    themes = {c: rng.integers(48, 84, size=8) for c in set(pattern)}
    return np.array(
        [
            [4 * bar + i / 2, 0.5, p]
            for bar, c in enumerate(pattern)
            for i, p in enumerate(themes[c])
        ]
    )


def test_structure_sees_the_lag_of_a_theme() -> None:
    same = s.self_similarity(_bars("AAAA"))
    np.testing.assert_allclose(same, 1)
    assert s.repetition(same) == 1
    period = s.structure(s.self_similarity(_bars("ABCDEFGH" * 4)))
    assert period["middle"] > 0.5
    assert period["short"] < 0.2
    assert period["long"] > 0.5
    new = s.self_similarity(_bars("ABCDEFGHIJKL"))
    assert s.repetition(new) == 0
    assert s.structure(new)["short"] < 0.2
    assert math.isnan(s.structure(new)["long"])
    assert math.isnan(s.repetition(s.self_similarity(C_MAJOR[:1])))


def test_polyphony() -> None:
    assert s.polyphony(C_MAJOR) == pytest.approx(1)
    assert s.polyphony(np.array([[0, 2, 60], [0, 2, 64], [10, 2, 67]])) == pytest.approx(1.5)
    assert s.polyphony(np.array([[0, 4, 60], [1, 1, 64]])) == pytest.approx(1.25)


def test_transposition_and_tempo_leave_what_they_should() -> None:
    piece = _bars("ABACABDA")
    here, up = s.describe(piece), s.describe(piece + np.array([0, 0, 3]))
    for name in here:
        np.testing.assert_allclose(here[name], up[name], err_msg=name)
    later = s.describe(piece + np.array([16, 0, 0]))
    np.testing.assert_allclose(list(here.values()), list(later.values()))


def test_no_notes_is_nan_and_bad_notes_are_errors() -> None:
    empty = s.describe(np.empty((0, 3)))
    assert empty.pop("n_notes") == 0
    assert all(math.isnan(v) for v in empty.values())
    with pytest.raises(InputError, match=r"note 1 .*200"):
        s.validate(np.array([[0, 1, 60], [0, 1, 200]]))
    with pytest.raises(InputError, match="note 0"):
        s.validate(np.array([[0, -1, 60]]))
    with pytest.raises(InputError, match=r"\[n, 3\]"):
        s.validate(np.zeros((2, 4)))
