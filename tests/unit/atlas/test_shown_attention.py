"""Maps of long windows are made small without losing attention."""

from __future__ import annotations

import numpy as np

from residual_audio.atlas.shown_attention import MOST_PATCHES, grouped, put_together


def maps_of(n: int) -> np.ndarray:
    raw = np.random.default_rng(0).random((2, n, n)).astype(np.float32)
    return raw / raw.sum(-1, keepdims=True)


def test_small_windows_stay_as_they_are() -> None:
    grid = np.array([(t, f) for f in range(8) for t in range(8)])
    groups, small = grouped(grid)
    maps = maps_of(64)
    found = put_together(maps, groups)
    assert len(small) == 64
    for i in range(64):
        j = int(np.flatnonzero((small == grid[i]).all(1))[0])
        assert found[0, j, int(groups[5])] == maps[0, i, 5]


def test_long_windows_are_put_together_and_rows_sum_to_one() -> None:
    for times, bands in ((1500, 1), (101, 12), (12, 101)):
        grid = np.array([(-1, -1), *((t, f) for t in range(times) for f in range(bands))])
        groups, small = grouped(grid)
        assert len(small) <= MOST_PATCHES + 1
        assert len(small) > MOST_PATCHES / 3
        assert (small < 0).all(1).sum() == 1  # a token without a place stays alone
        # neighbours stay together
        assert groups[1] == groups[2] or times * bands <= MOST_PATCHES
        maps = maps_of(len(grid))
        found = put_together(maps, groups)
        np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-4)
        inside = np.flatnonzero(groups == groups[-1])
        want = maps[0][inside].mean(0)[inside].sum()
        np.testing.assert_allclose(found[0, groups[-1], groups[-1]], want, rtol=1e-4)
