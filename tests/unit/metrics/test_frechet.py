"""FAD against the matrix square root and closed forms; FAD∞ and kernel distance against truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import linalg

from residual_audio.errors import InputError
from residual_audio.metrics import frechet as f


def _cloud(n: int, d: int, seed: int, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(99).normal(size=(d, d)) / math.sqrt(d)
    return shift + scale * rng.normal(size=(n, d)) @ mix


@pytest.mark.parametrize(("n", "m"), [(200, 150), (20, 200), (12, 10)])
def test_equals_the_matrix_square_root(n: int, m: int) -> None:
    x, y = _cloud(n, 16, 0), _cloud(m, 16, 1, shift=0.3, scale=1.4)
    a, b = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    # (A^{1/2} B A^{1/2})^{1/2}: real, where sqrtm(A B) of singular matrices is not
    root = linalg.sqrtm(a + 1e-14 * np.eye(16))
    shared = np.trace(linalg.sqrtm(root @ b @ root + 1e-14 * np.eye(16)).real)
    gap = ((x.mean(0) - y.mean(0)) ** 2).sum()
    expected = gap + np.trace(a) + np.trace(b) - 2 * shared
    assert f.frechet_distance(f.fit_gaussian(x), f.fit_gaussian(y)) == pytest.approx(
        expected, rel=1e-6
    )
    if min(n, m) > 100:
        product = linalg.sqrtm(a @ b).real
        assert expected == pytest.approx(gap + np.trace(a + b - 2 * product), rel=1e-9)
    of_statistics = f.frechet_distance(
        f.gaussian_from_statistics(x.mean(0), a, n), f.gaussian_from_statistics(y.mean(0), b, m)
    )
    assert of_statistics == pytest.approx(expected, rel=1e-6)


def test_closed_forms() -> None:
    d = 8
    eye = np.eye(d)
    one = f.gaussian_from_statistics(np.zeros(d), eye, 10)
    wide = f.gaussian_from_statistics(np.full(d, 2.0), 9 * eye, 10)
    assert f.frechet_distance(one, wide) == pytest.approx(4 * d + (3 - 1) ** 2 * d)
    # commuting covariances: Σ (√a − √b)²
    a, b = np.arange(1.0, d + 1), np.arange(d, 0.0, -1)
    commuting = f.frechet_distance(
        f.gaussian_from_statistics(np.zeros(d), np.diag(a), 9),
        f.gaussian_from_statistics(np.zeros(d), np.diag(b), 9),
    )
    assert commuting == pytest.approx(((np.sqrt(a) - np.sqrt(b)) ** 2).sum())
    point = f.gaussian_from_statistics(np.zeros(d), np.zeros((d, d)), 9)
    assert f.frechet_distance(point, one) == pytest.approx(d)


def test_laws() -> None:
    x, y = _cloud(100, 12, 0), _cloud(80, 12, 1, 0.5)
    gx, gy = f.fit_gaussian(x), f.fit_gaussian(y)
    assert f.frechet_distance(gx, gx) == pytest.approx(0, abs=1e-12)
    assert f.frechet_distance(gx, gy) == pytest.approx(f.frechet_distance(gy, gx), rel=1e-10)
    q = np.linalg.qr(np.random.default_rng(3).normal(size=(12, 12)))[0]
    turned = f.frechet_distance(f.fit_gaussian(x @ q + 7), f.fit_gaussian(y @ q + 7))
    assert turned == pytest.approx(f.frechet_distance(gx, gy), rel=1e-8)
    scaled = f.frechet_distance(f.fit_gaussian(3 * x), f.fit_gaussian(3 * y))
    assert scaled == pytest.approx(9 * f.frechet_distance(gx, gy), rel=1e-9)
    np.testing.assert_allclose(gx.covariance, np.cov(x, rowvar=False), atol=1e-12)
    assert f.frechet_distance(f.fit_gaussian(np.ones((5, 3))), f.fit_gaussian(np.ones((4, 3)))) == 0


def test_infinity_is_near_zero_for_one_law_where_fad_is_not() -> None:
    x, y = _cloud(400, 64, 0), _cloud(400, 64, 1)
    plain = f.frechet_distance(f.fit_gaussian(x), f.fit_gaussian(y))
    found = f.frechet_infinity(x, y, seed=0)
    assert plain > 10 * abs(found.value)
    assert abs(found.value) < 4 * found.standard_error
    assert found.value + found.slope == pytest.approx(plain, rel=0.1)
    again = f.frechet_infinity(x, y, seed=0)
    assert again.value == found.value


def test_infinity_finds_the_true_distance_and_its_error() -> None:
    truth = 32 * 0.3**2
    found = [
        f.frechet_infinity(
            np.random.default_rng(s).normal(size=(200, 32)),
            np.random.default_rng(1000 + s).normal(size=(160, 32)) + 0.3,
            seed=s,
        )
        for s in range(12)
    ]
    values = np.array([r.value for r in found])
    assert values.mean() == pytest.approx(truth, abs=0.5)
    assert 0.4 < np.mean([r.standard_error for r in found]) / values.std(ddof=1) < 2.5


def test_infinity_with_statistics_only_says_so() -> None:
    x, y = _cloud(300, 16, 0), _cloud(300, 16, 1)
    found = f.frechet_infinity(f.fit_gaussian(x), y)
    assert not found.both_sides
    assert f.frechet_infinity(x, y).both_sides
    with pytest.raises(InputError, match="four files"):
        f.frechet_infinity(x, y, y_groups=np.zeros(300, int))


def test_kernel_distance_by_brute_force_and_unbiased() -> None:
    x, y = _cloud(7, 3, 0), _cloud(5, 3, 1)

    def k(a: np.ndarray, b: np.ndarray) -> float:
        return math.exp(-((a - b) ** 2).sum() / (2 * 1.5**2))

    def within(z: np.ndarray) -> float:
        return np.mean([k(a, b) for i, a in enumerate(z) for j, b in enumerate(z) if i != j])

    expected = within(x) + within(y) - 2 * np.mean([k(a, b) for a in x for b in y])
    assert f.kernel_distance(x, y, bandwidth=1.5).value == pytest.approx(expected)
    values = [
        f.kernel_distance(_cloud(40, 8, s), _cloud(40, 8, 500 + s), bandwidth=2.0)
        for s in range(60)
    ]
    seen = np.array([v.value for v in values])
    assert abs(seen.mean()) < 3 * seen.std() / math.sqrt(60)
    assert 0.5 < np.mean([v.standard_error for v in values]) / seen.std() < 3
    assert f.kernel_distance(x, y + 3).value > 0.5


def test_windows_of_a_file_are_one_unit() -> None:
    x, y = _cloud(30, 4, 0), _cloud(30, 4, 1, 0.3)
    g = np.repeat(np.arange(15), 2)
    k = f.kernel_distance(x, y, bandwidth=2.0, x_groups=g, y_groups=g)
    assert k.standard_error > 0
    alone = f.kernel_distance(x, y, bandwidth=2.0, x_groups=np.arange(30), y_groups=np.arange(30))
    assert alone == f.kernel_distance(x, y, bandwidth=2.0)
    with pytest.raises(InputError, match="two files"):
        f.kernel_distance(x, y, x_groups=np.zeros(30))


def test_file_distances_and_outliers() -> None:
    reference = f.fit_gaussian(_cloud(200, 6, 0))
    y = _cloud(30, 6, 1)
    y[-1] += 30
    names = [*np.repeat([f"f{i:02d}" for i in range(14)], 2), "single", "far"]
    found = f.file_distances(reference, y, names)
    assert len(found) == 16
    assert found["f00"] == pytest.approx(f.frechet_distance(reference, f.fit_gaussian(y[:2])))
    flags = f.outliers(np.sqrt(list(found.values())))
    assert [name for name, flag in zip(found, flags, strict=True) if flag] == ["far"]
    assert not f.outliers(np.ones(5)).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: f.fit_gaussian(np.zeros((1, 4))), "1 vectors are not enough"),
        (lambda: f.fit_gaussian(np.zeros((0, 4))), "0 vectors"),
        (lambda: f.fit_gaussian(np.array([[0.0, np.nan], [0, 0]])), "row 0"),
        (lambda: f.fit_gaussian(np.zeros(4)), r"\[n, d\]"),
        (
            lambda: f.frechet_distance(
                f.fit_gaussian(_cloud(5, 3, 0)), f.fit_gaussian(_cloud(5, 4, 0))
            ),
            "3 and 4 dimensions",
        ),
        (lambda: f.kernel_distance(np.ones((4, 2)), np.zeros((4, 2))), "all the same"),
        (lambda: f.gaussian_from_statistics(np.zeros(2), np.zeros((3, 3)), 5), "do not fit"),
        (
            lambda: f.gaussian_from_statistics(np.zeros(2), np.array([[1, 2], [0, 1]]), 5),
            "symmetric",
        ),
    ],
)
def test_nonsense_is_refused(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
