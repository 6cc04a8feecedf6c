"""Curvature: found on a rolled sheet, not on a flat one, and judged on points not fitted."""

import numpy as np
import pytest

import residual_audio as ra
from residual_audio.errors import InputError
from residual_audio.metrics.curved import isomap, kept_by_bottleneck, kept_by_components


def roll(rng: np.random.Generator, n: int, bend: float) -> np.ndarray:
    """A sheet of two dimensions in six, flat or bent."""
    u, v = rng.uniform(-1, 1, (2, n))
    flat = np.stack([u, v, np.zeros(n)], 1)
    bent = np.stack([np.sin(2.5 * u), v, np.cos(2.5 * u)], 1)
    x = np.concatenate([bent if bend else flat, np.zeros((n, 3))], 1)
    return x + 0.01 * rng.normal(size=x.shape)


def test_a_bent_sheet_needs_two_numbers_and_three_components():
    rng = np.random.default_rng(0)
    x, train = roll(rng, 200, 1.0), np.arange(100)
    assert isomap(x, 4).dimension == 2
    pca = kept_by_components(x, train, [1, 2, 3])
    bottleneck = kept_by_bottleneck(x, train, [2], n_steps=300)
    assert pca[1] < 0.95 < pca[2]
    assert bottleneck[0] > pca[1] + 0.05


def test_a_flat_cloud_shows_no_curvature_on_held_out_points():
    rng, gaps = np.random.default_rng(1), []
    for seed in range(4):
        x, train = rng.normal(size=(120, 6)) * [3, 2, 1, 0.5, 0.3, 0.2], np.arange(60)
        pca = kept_by_components(x, train, [2])
        gaps.append(kept_by_bottleneck(x, train, [2], n_steps=100, seed=seed)[0] - pca[0])
    assert np.mean(gaps) < 0.03


def test_as_a_part_of_an_analysis(tmp_path):
    run = ra.extract("nano", ra.load_dataset("synthetic", n_clips=44), tmp_path / "run")
    table = ra.analyse(run, "curved")["curved"]
    assert len(set(table["head_id"])) == 4
    assert set(table["k"]) == {1, 2, 4, 8}
    assert (table["kept_pca"] <= 1).all()
    with pytest.raises(InputError, match="more than 8 clips"):
        isomap(np.zeros((8, 3)))
