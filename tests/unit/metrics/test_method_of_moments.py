"""The method of moments: as scikit-dimension, right on a subspace, and refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest
import skdim

from residual_audio.errors import InputError
from residual_audio.metrics.dimension import method_of_moments
from residual_audio.metrics.neighbours import neighbour_distances


@pytest.mark.parametrize("d", [2, 5, 9])
def test_equals_scikit_dimension(d: int) -> None:
    x = np.random.default_rng(d).normal(size=(400, d)) @ np.eye(d, 12)
    found = neighbour_distances(x, 20)
    for k in (5, 20):
        oracle = skdim.id.MOM().fit(x, n_neighbors=k, comb="mean").dimension_
        assert method_of_moments(found, k).value[0] == pytest.approx(oracle, rel=1e-9)


def test_scale_and_rotation_leave_it_alone() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    turned = 1e6 * x @ np.linalg.qr(rng.normal(size=(4, 4)))[0] + 3
    both = method_of_moments(neighbour_distances(np.stack([x, turned]), 20))
    assert both.value[1] == pytest.approx(both.value[0], rel=1e-6)
    assert (both.error > 0).all()
    assert both.n.tolist() == [300, 300]


def test_no_value_without_a_reason() -> None:
    found = method_of_moments(neighbour_distances(np.ones((1, 50, 3)), 10))
    assert np.isnan(found.value[0])
    assert found.reason[0].startswith("constant")
    with pytest.raises(InputError, match="at least 2"):
        method_of_moments(
            neighbour_distances(np.random.default_rng(0).normal(size=(1, 50, 3)), 4), 1
        )
