"""Nearest neighbours: always the exact ones, whatever the cloud looks like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residual_audio.errors import InputError
from residual_audio.metrics import neighbours
from residual_audio.metrics.neighbours import first_of_each, nearest, neighbour_distances
from residual_audio.metrics.spectra import isometry


def by_definition(x: np.ndarray, k: int) -> np.ndarray:
    x = x.astype(np.float64)
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    np.fill_diagonal(d, np.inf)
    return np.sort(d, axis=1)[:, :k]


def clouds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(300, 24))
    return {
        "gaussian": ball,
        "float32 far from the origin": (ball + 1e4).astype(np.float32),
        "tight clusters far apart": np.r_[ball * 1e-6 + 1, ball * 1e-6 - 1],
        "tighter than float64 products can see": np.r_[ball * 1e-10 + 1, ball * 1e-10 - 1],
        "one far outlier": np.r_[ball, 1e9 * np.ones((1, 24))],
        "integer grid": rng.integers(0, 3, size=(400, 4)).astype(float),
        "many copies of one point": np.r_[ball[:100], np.tile(ball[:1], (200, 1))],
        "fewer points than groups": ball[:40],
        "wide": rng.normal(size=(60, 700)),
        "tiny numbers": ball * 1e-30,
        "huge numbers": ball * 1e30,
    }


@pytest.mark.parametrize("name", list(clouds()))
def test_exact(name: str) -> None:
    x = clouds()[name]
    expected = by_definition(x, 20)
    distances, indices = nearest(x, 20, return_indices=True)
    np.testing.assert_allclose(distances, expected, rtol=1e-12)
    assert (indices != np.arange(len(x))[:, None]).all()
    again = np.linalg.norm(x.astype(np.float64)[indices] - x.astype(np.float64)[:, None], axis=-1)
    np.testing.assert_allclose(again, expected, rtol=1e-12)
    np.testing.assert_array_equal(nearest(x, 20)[0], distances)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 300),
    d=st.integers(1, 40),
    k=st.integers(1, 30),
    spread=st.floats(0, 12),
)
def test_exact_on_clouds_of_many_scales(seed: int, n: int, d: int, k: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * 10 ** rng.uniform(-spread, 0, size=(n, 1))
    np.testing.assert_allclose(nearest(x, k)[0], by_definition(x, min(k, n - 1)), rtol=1e-11)


def test_most_rows_are_proved_without_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(neighbours, "_brute_force", lambda x, rows, *rest: seen.append(len(rows)))
    ball = np.random.default_rng(1).normal(size=(1000, 24))
    nearest(ball, 20)
    nearest(np.r_[ball * 1e-4 + 1, ball * 1e-4 - 1], 20)  # beyond float32, not beyond float64
    assert seen == [0, 0]


def test_duplicates_are_dropped_and_counted() -> None:
    x = np.random.default_rng(2).normal(size=(1, 100, 8)).astype(np.float32)
    doubled = np.concatenate([x, x[:, :3], -x[:, :1] * 0], axis=1)
    found = neighbour_distances(doubled, 5)
    assert found.duplicates.tolist() == [3]
    assert found.n.tolist() == [101]
    assert np.isnan(found.values[0, 100:103]).all()
    assert (found.values[0, :100] > 0).all()
    np.testing.assert_array_equal(first_of_each(np.array([[0.0], [1.0], [-0.0], [1.0]])), [0, 1])


def test_points_closer_than_the_input_can_tell_are_duplicates() -> None:
    x = np.random.default_rng(3).normal(size=(1, 80, 8)).astype(np.float32) + np.float32(100)
    twin = np.nextafter(x[:, :2], np.float32(1000))
    found = neighbour_distances(np.concatenate([x, twin], axis=1), 5)
    assert found.duplicates.tolist() == [2]
    np.testing.assert_allclose(
        found.values[0, :80], neighbour_distances(x, 5).values[0], rtol=1e-12
    )


def test_a_transform_gives_the_distances_after_the_projection() -> None:
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(2, 150, 6)).astype(np.float32), rng.normal(size=(2, 6, 40))
    ours = neighbour_distances(x, 7, transform=isometry(w)).values
    for h in range(2):
        expected = by_definition(x[h].astype(np.float64) @ w[h], 7)
        np.testing.assert_allclose(ours[h], expected, rtol=1e-9)


def test_batch_equals_single_and_few_clips_give_nan() -> None:
    x = np.random.default_rng(5).normal(size=(3, 50, 4))
    together = neighbour_distances(x, 5).values
    np.testing.assert_array_equal(together[1], neighbour_distances(x[1], 5).values[0])
    few = neighbour_distances(x[:, :4], 5).values
    assert np.isfinite(few[..., :3]).all()
    assert np.isnan(few[..., 3:]).all()


def test_bad_input_is_refused() -> None:
    x = np.zeros((1, 5, 2))
    x[0, 3] = np.inf
    with pytest.raises(InputError, match=r"head s3\.b0\.h0, clip 'd'"):
        neighbour_distances(x, 2, heads=["s3.b0.h0"], clips=list("abcde"))
    with pytest.raises(InputError, match="k = 0"):
        neighbour_distances(np.zeros((5, 2)), 0)
    with pytest.raises(InputError, match="shape"):
        neighbour_distances(np.zeros(5))
