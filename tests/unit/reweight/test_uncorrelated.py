"""Uncorrelated components: they sum to the vector, do what orthonormal ones do, and are bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from residual_audio.errors import InputError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight.acting import gains_digest
from residual_audio.reweight.edit_size import edit_size, likeness
from residual_audio.reweight.gain_files import load_gains, save_gains
from residual_audio.reweight.gains import affine, affine_of, check_gains
from residual_audio.reweight.uncorrelated import Uncorrelated, centre_of, turned, uncorrelated
from residual_audio.types import Gains

N, D = 300, 6
UNIT = "s3.b1.h0"


@pytest.fixture
def vectors() -> np.ndarray:
    draw = np.random.default_rng(0)
    return draw.normal(size=(N, D)) @ draw.normal(size=(D, D)) * 2 + draw.normal(size=D)


@pytest.fixture
def found(vectors) -> Uncorrelated:
    draw = np.random.default_rng(1)
    mix = np.linalg.qr(draw.normal(size=(D, D)))[0]
    spectrum = turned(uncorrelated(fit_spectrum(vectors)), mix)
    assert isinstance(spectrum, Uncorrelated)
    return spectrum


def test_components_sum_to_the_vector_and_are_uncorrelated(vectors, found):
    read = vectors @ found.readers.T
    np.testing.assert_allclose(read @ found.basis, vectors, atol=1e-9)
    np.testing.assert_allclose(found.readers @ found.basis.T, np.eye(D), atol=1e-9)
    moment = read.T @ read / N
    # spectra count n − 1 clips, a second moment all of them
    np.testing.assert_allclose(moment, np.eye(D) * np.trace(moment) / D, atol=0.01 * moment[0, 0])


def test_what_goes_through_is_told_by_the_eigenvalues(vectors, found):
    read = vectors @ found.readers.T
    through = (read**2).mean(0) * (found.basis**2).sum(1)
    np.testing.assert_allclose(found.eigenvalues, through, rtol=0.01)


def test_gains_of_one_are_the_identity_and_others_scale_components(vectors, found):
    same, shift = affine(found, np.ones(D), keep_mean=True)
    np.testing.assert_array_equal(same, np.eye(D))
    assert not shift.any()
    gains = np.linspace(0, 4, D)
    a, c = affine(found, gains, keep_mean=True, mean_gain=1.5)
    there = vectors @ found.readers.T * gains @ found.basis + 0.5 * found.mean
    np.testing.assert_allclose(vectors @ a + c, there, atol=1e-9)


def test_the_energy_of_a_change_is_bounded_by_its_gains(vectors, found):
    draw = np.random.default_rng(2)
    for _ in range(50):
        gains = draw.uniform(0, 4, D)
        a, _ = affine(found, gains, keep_mean=True)
        changed = ((vectors @ a - vectors) ** 2).sum()
        assert changed <= 1.02 * np.abs(gains - 1).max() ** 2 * (vectors**2).sum()


def test_an_edit_is_like_itself_in_any_coordinates_and_its_size_is_what_it_does(vectors, found):
    draw = np.random.default_rng(3)
    gains = Gains({UNIT: draw.uniform(0, 4, D)}, {UNIT: found}, means={UNIT: 1.4})
    assert likeness(gains, gains) == pytest.approx(1)
    order = draw.permutation(D)
    moved = replace(
        found,
        basis=found.basis[order],
        readers=found.readers[order],
        eigenvalues=found.eigenvalues[order],
    )
    again = Gains({UNIT: gains.gains[UNIT][order]}, {UNIT: moved}, means={UNIT: 1.4})
    assert likeness(gains, again) == pytest.approx(1)
    other = Gains({UNIT: draw.uniform(0, 4, D)}, {UNIT: found}, means={UNIT: 0.2})
    changes = []
    for one in (gains, other):
        a, c = affine_of(one, UNIT)
        changes.append(vectors @ a + c - vectors)
    inner = (changes[0] * changes[1]).sum()
    length = np.sqrt((changes[0] ** 2).sum() * (changes[1] ** 2).sum())
    assert likeness(gains, other) == pytest.approx(inner / length, abs=0.01)
    plain = Gains(gains.gains, gains.spectra)
    share = ((vectors @ affine_of(plain, UNIT)[0] - vectors) ** 2).sum() / (vectors**2).sum()
    # energy is a share of what goes through all components, each by itself
    through = (found.eigenvalues.sum()) / (vectors**2).sum(1).mean()
    assert edit_size(plain)["energy"] ** 2 * through == pytest.approx(share, rel=0.35)


def test_files_keep_readers_and_a_digest_tells_them_apart(found, tmp_path):
    gains = Gains({UNIT: np.full(D, 2.0, np.float32)}, {UNIT: found}, path="direct")
    back = load_gains(save_gains(gains, tmp_path / "mine"))
    kept = back.spectra[UNIT]
    assert isinstance(kept, Uncorrelated)
    np.testing.assert_allclose(kept.readers, found.readers, rtol=1e-6)
    assert not centre_of(kept).any()
    assert gains_digest(back) == gains_digest(gains)
    other = replace(found, readers=found.readers * 1.1)
    assert gains_digest(replace(gains, spectra={UNIT: other})) != gains_digest(gains)
    with pytest.raises(InputError, match="readers"):
        check_gains(replace(gains, spectra={UNIT: replace(found, readers=found.readers[:2])}))


def test_units_that_do_not_vary_along_an_axis_read_no_noise():
    draw = np.random.default_rng(4)
    faint = draw.normal(size=(N, 2)) * [1.0, 1e-9]
    found = uncorrelated(fit_spectrum(faint))
    lengths = np.linalg.norm(found.basis, axis=1)
    assert lengths.max() / lengths.min() == pytest.approx(1 / 0.02, rel=1e-6)
