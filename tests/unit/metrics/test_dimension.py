"""Intrinsic dimension: scikit-dimension as oracle, known manifolds, laws, and hostile input."""

from __future__ import annotations

import numpy as np
import pytest
import skdim
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from residual_audio.errors import InputError
from residual_audio.metrics.dimension import (
    gride,
    local_dimension,
    mle,
    two_nn,
    two_nn_of_ratios,
)
from residual_audio.metrics.neighbours import Distances, neighbour_distances


def subspace(d: int, n: int = 1000, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(24, 24)))[0][:d]
    return rng.normal(size=(n, d)) @ basis + noise * rng.normal(size=(n, 24))


def sphere(d: int, n: int = 1000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d + 1))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.pad(x, ((0, 0), (0, 24 - d - 1)))


def torus(d: int, n: int = 1000, seed: int = 0) -> np.ndarray:
    angle = np.random.default_rng(seed).uniform(0, 2 * np.pi, size=(n, d))
    x = np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    return np.pad(x, ((0, 0), (0, 24 - 2 * d)))


def swiss_roll(n: int = 2000, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t, height = 1.5 * np.pi * (1 + 2 * rng.uniform(size=n)), 21 * rng.uniform(size=n)
    return np.stack([t * np.cos(t), height, t * np.sin(t)], axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_equals_scikit_dimension(seed: int) -> None:
    x = subspace(4 + 5 * seed, n=400, noise=0.01, seed=seed)
    found = neighbour_distances(x, 20)
    for method, discard in [("linear", 0.1), ("linear", 0.25), ("mle", 0.1), ("mle", 0.0)]:
        oracle = skdim.id.TwoNN(method=method, discard_fraction=discard).fit(x).dimension_
        assert two_nn(found, method, discard).value[0] == pytest.approx(oracle, rel=1e-9)
    for k in (3, 10, 20):
        for ours, theirs in (("harmonic", "mle"), ("arithmetic", "mean")):
            oracle = skdim.id.MLE().fit(x, n_neighbors=k, comb=theirs)
            assert mle(found, k, ours).value[0] == pytest.approx(oracle.dimension_, rel=1e-9)
        np.testing.assert_allclose(local_dimension(found, k)[0], oracle.dimension_pw_, rtol=1e-9)


def test_gride_maximises_its_likelihood() -> None:
    found = neighbour_distances(subspace(6, n=500), 20)
    for order in (1, 2, 5, 10):
        x = np.log(found.values[0, :, 2 * order - 1] / found.values[0, :, order - 1])

        def loss(d: float, x: np.ndarray = x, order: int = order) -> float:
            return -(
                len(x) * np.log(d)
                + (order - 1) * np.log(np.expm1(d * x)).sum()
                - ((2 * order - 1) * d + 1) * x.sum()
            )

        best = minimize_scalar(loss, bounds=(0.5, 40), method="bounded", options={"xatol": 1e-9}).x
        ours = gride(found, order)
        assert ours.value[0] == pytest.approx(best, rel=1e-6)
        step = 1e-3 * best  # error from the curvature of the likelihood
        curvature = (loss(best + step) - 2 * loss(best) + loss(best - step)) / step**2
        assert ours.error[0] == pytest.approx(curvature**-0.5, rel=1e-3)


def test_gride_of_order_one_is_two_nn() -> None:
    found = neighbour_distances(subspace(5), 4)
    exact = two_nn(found, "mle", 0.0).value[0]
    assert gride(found, 1).value[0] == pytest.approx(exact * 1000 / 999, rel=1e-12)


# cloud, true dimension, how far above it an estimate may lie. At 1,000 clips the neighbours on a
# torus of many dimensions are a radian apart: chords cut corners and see some of the 2d axes.
MANIFOLDS = (
    [(subspace(d), d, 1.12) for d in range(1, 11)]
    + [(subspace(d, noise=1e-4), d, 1.12) for d in (2, 5, 10)]
    + [(sphere(d), d, 1.12) for d in (1, 2, 4, 7, 10)]
    + [(torus(d), d, 1.12 if d < 7 else 1.3) for d in (1, 2, 4, 7, 10)]
    + [(swiss_roll(), 2, 1.12)]
)


@pytest.mark.parametrize(("cloud", "true", "above"), MANIFOLDS)
def test_known_manifolds(cloud: np.ndarray, true: int, above: float) -> None:
    found = neighbour_distances(cloud, 20)
    linear, likelihood, wide = two_nn(found), two_nn(found, "mle", 0.0), mle(found)
    # sampling error, plus a downward bias that grows with d (boundaries, finite n)
    for estimate, bias in ((linear, 0.02 * true), (likelihood, 0.02 * true), (wide, 0.025 * true)):
        value, error = estimate.value[0], estimate.error[0]
        assert true * (0.97 - bias) - 4 * error <= value <= true * above + 4 * error
        assert 0 < error < 0.12 * true


def test_errors_are_the_spread_over_samples() -> None:
    rows = [
        [f(neighbour_distances(subspace(6, n=400, seed=s), 20)) for s in range(40)]
        for f in (two_nn, lambda d: two_nn(d, "mle", 0.0), lambda d: gride(d, 4))
    ]
    for row in rows:
        spread = np.std([e.value[0] for e in row], ddof=1)
        claimed = np.mean([e.error[0] for e in row])
        assert 0.5 < claimed / spread < 1.7


def test_one_duplicate_moves_nothing() -> None:
    x = subspace(8, n=1000).astype(np.float32)
    for f in (two_nn, mle, lambda d: gride(d, 8)):
        clean = f(neighbour_distances(x)).value[0]
        spoiled = f(neighbour_distances(np.concatenate([x, x[:1]]))).value[0]
        assert spoiled == pytest.approx(clean, rel=0.05)


HOSTILE = {
    "half duplicates": (np.tile(subspace(5, n=300), (2, 1)), "duplicates"),
    "one row many times": (np.r_[subspace(5, n=200), np.ones((200, 24))], "duplicates"),
    "integer grid": (np.stack(np.meshgrid(*[np.arange(8.0)] * 3), -1).reshape(-1, 3), "tied"),
    "line": (np.linspace(0, 1, 500)[:, None] * np.arange(1, 25), "tied"),
    "line in float32": (
        (np.linspace(0, 1, 500)[:, None] * np.arange(1, 25) + 5).astype(np.float32),
        "tied",
    ),
    "constant": (np.full((300, 24), 3.3), "constant"),
    "too few": (subspace(5, n=12), "too few"),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_input_is_nan_with_a_reason(name: str) -> None:
    x, reason = HOSTILE[name]
    found = neighbour_distances(x, 10)
    for estimate in (two_nn(found), two_nn(found, "mle"), mle(found), gride(found, 4)):
        assert np.isnan(estimate.value[0])
        assert np.isnan(estimate.error[0])
        assert reason in estimate.reason[0]
    assert np.isnan(local_dimension(found)).all()


def test_hostile_heads_do_not_disturb_their_neighbours() -> None:
    good = subspace(5, n=400)
    batch = np.stack([np.zeros_like(good), good, np.tile(good[:200], (2, 1))])
    alone = two_nn(neighbour_distances(good)).value[0]
    together = two_nn(neighbour_distances(batch))
    assert np.isnan(together.value[[0, 2]]).all()
    assert together.value[1] == pytest.approx(alone, rel=1e-12)


def test_offset_in_float32_moves_no_more_than_rounding() -> None:
    x = subspace(8, noise=0.1).astype(np.float32)
    shifted = x + np.float32(1e4)
    rounded = (shifted - np.float32(1e4)).astype(np.float32)  # what rounding alone has done
    for f in (two_nn, mle):
        moved = f(neighbour_distances(shifted)).value[0]
        assert moved == pytest.approx(f(neighbour_distances(rounded)).value[0], rel=1e-6)
        assert moved == pytest.approx(f(neighbour_distances(x)).value[0], rel=0.01)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-30, 1e-6, 1.0, 1e6, 1e30]),
    shift=st.floats(-10, 10),
)
def test_rotation_translation_scale_and_order_leave_dimensions_alone(
    seed: int, scale: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    x = subspace(5, n=150, noise=0.1, seed=seed)
    rotation = np.linalg.qr(rng.normal(size=(24, 24)))[0]
    order = rng.permutation(len(x))
    before = neighbour_distances(x, 8)
    after = neighbour_distances((x[order] @ rotation + shift) * scale, 8)
    for f in (two_nn, mle, lambda d: gride(d, 4)):
        assert f(after).value[0] == pytest.approx(f(before).value[0], rel=1e-6)
    np.testing.assert_allclose(
        local_dimension(after)[0], local_dimension(before)[0][order], rtol=1e-6
    )


def test_ratios_alone_give_the_same_two_nn() -> None:
    found = neighbour_distances(np.stack([subspace(3), subspace(7)]), 2)
    log_mu = np.log(found.values[..., 1] / found.values[..., 0])
    np.testing.assert_array_equal(two_nn_of_ratios(log_mu), two_nn(found).value)


def test_nonsense_is_refused() -> None:
    found = neighbour_distances(subspace(3, n=50), 5)
    with pytest.raises(InputError, match="20 neighbours"):
        mle(found, 20)
    with pytest.raises(InputError, match="'median'"):
        mle(found, combine="median")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'slope'"):
        two_nn(found, "slope")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="order 0"):
        gride(found, 0)
    assert isinstance(found, Distances)
