"""Uncorrelated components: they sum to the vector, do what orthonormal ones do, and are bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from residual_audio.errors import InputError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight import gain_files
from residual_audio.reweight.acting import gains_digest
from residual_audio.reweight.edit_size import edit_size, likeness
from residual_audio.reweight.gain_files import load_gains, save_gains
from residual_audio.reweight.gains import affine, affine_of, check_gains
from residual_audio.reweight.uncorrelated import (
    FAINTEST,
    FAINTEST_WITHIN,
    WITHIN,
    Uncorrelated,
    centre_of,
    energy_of,
    turned,
    uncorrelated,
    within_classes,
)
from residual_audio.types import Gains

N, D = 300, 6
UNIT = "s3.b1.h0"


@pytest.fixture
def vectors() -> np.ndarray:
    draw = np.random.default_rng(0)
    return draw.normal(size=(N, D)) @ draw.normal(size=(D, D)) * 2 + draw.normal(size=D)


@pytest.fixture
def within(vectors) -> np.ndarray:
    """Along principal axes, of classes that differ in one direction above all."""
    codes = np.argsort(np.argsort(vectors[:, 0])) // 15
    spectrum = fit_spectrum(vectors)
    made = within_classes((vectors - spectrum.mean) @ spectrum.basis.T, codes)
    return made


@pytest.fixture(params=["no classes", "classes"])
def found(vectors, within, request) -> Uncorrelated:
    draw = np.random.default_rng(1)
    mix = np.linalg.qr(draw.normal(size=(D, D)))[0]
    known = within if request.param == "classes" else None
    spectrum = turned(uncorrelated(fit_spectrum(vectors), known), mix)
    assert isinstance(spectrum, Uncorrelated)
    return spectrum


def test_components_sum_to_the_vector_and_their_moment_is_told(vectors, found):
    read = vectors @ found.readers.T
    np.testing.assert_allclose(read @ found.basis, vectors, atol=1e-9)
    np.testing.assert_allclose(found.readers @ found.basis.T, np.eye(D), atol=1e-9)
    moment = read.T @ read / N
    # spectra count n − 1 clips, a second moment all of them
    np.testing.assert_allclose(found.moment, moment, atol=0.01 * moment.max())


def test_components_are_uncorrelated_over_clips_as_classes_see_them(vectors, within):
    spectrum = fit_spectrum(vectors)
    for known, share, faintest in (
        (None, 0.0, FAINTEST),
        (within, WITHIN, FAINTEST_WITHIN),
    ):
        made = uncorrelated(spectrum, known)
        read = made.readers @ spectrum.basis.T
        inside = spectrum.basis @ spectrum.mean
        whole = np.diag(spectrum.eigenvalues) + np.outer(inside, inside)
        seen = share * within + (1 - share) * whole
        moment = read @ seen @ read.T
        strengths = np.linalg.eigvalsh(seen)[::-1]
        faint = np.minimum(1, strengths / (faintest**2 * strengths[0]))
        np.testing.assert_allclose(moment, np.diag(faint) * moment[0, 0], atol=1e-9 * moment[0, 0])


def test_what_classes_differ_in_is_written_louder_but_not_beyond_all_bounds():
    draw = np.random.default_rng(5)
    codes = np.repeat(np.arange(4), 50)
    # the first direction is all class, the second none
    apart = np.stack([3.0 * codes + 0.01 * draw.normal(size=200), draw.normal(size=200)], 1)
    spectrum = fit_spectrum(apart - apart.mean(0))
    within = within_classes((apart - apart.mean(0)) @ spectrum.basis.T, codes)

    def along_classes(made: Uncorrelated) -> float:
        """The root mean square that is read along the first direction, next to the second."""
        read = np.sqrt(np.diagonal(made.moment))
        first = np.abs(made.readers[:, 0]).argmax()
        return float(read[first] / read[1 - first])

    assert along_classes(uncorrelated(spectrum)) == pytest.approx(1, rel=0.01)
    louder = along_classes(uncorrelated(spectrum, within))
    assert 2 < louder <= 1.01 / (1 - WITHIN) ** 0.5


def test_classes_of_one_clip_say_nothing():
    x = np.random.default_rng(6).normal(size=(5, D))
    with pytest.raises(InputError, match="no class has two clips"):
        within_classes(x, np.arange(5))
    pooled = within_classes(x, np.array([0, 0, 1, 1, 2]))
    first, second = x[:2] - x[:2].mean(0), x[2:4] - x[2:4].mean(0)
    np.testing.assert_allclose(pooled, (first.T @ first + second.T @ second) / 2, atol=1e-12)


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


def test_the_energy_of_a_change_is_bounded_by_its_gains(vectors, within):
    draw = np.random.default_rng(2)
    spectrum = fit_spectrum(vectors)
    inside = spectrum.basis @ spectrum.mean
    whole = np.diag(spectrum.eigenvalues) + np.outer(inside, inside)
    for known, share, faintest in (
        (None, 0.0, FAINTEST),
        (within, WITHIN, FAINTEST_WITHIN),
    ):
        # of what components are uncorrelated over, along the principal axes
        seen = share * within + (1 - share) * whole
        mix = np.linalg.qr(draw.normal(size=(D, D)))[0]
        made = turned(uncorrelated(spectrum, known), mix)
        strengths = np.linalg.eigvalsh(seen)
        energy = np.maximum(strengths, faintest**2 * strengths.max()).sum()
        for _ in range(50):
            gains = draw.uniform(0, 4, D)
            a, _ = affine(made, gains, keep_mean=True)
            change = spectrum.basis @ (a - np.eye(D))
            changed = np.trace(change.T @ seen @ change)
            assert changed <= 1.001 * np.abs(gains - 1).max() ** 2 * energy


def test_the_energy_of_a_change_is_what_it_does(vectors, found):
    gains = np.linspace(0, 4, D)
    a, _ = affine(found, gains, keep_mean=True)
    done = np.square(vectors @ a - vectors).sum(1).mean()
    assert energy_of(found, gains - 1) == pytest.approx(done, rel=0.01)


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
        moment=found.moment[np.ix_(order, order)],
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
    assert edit_size(plain)["energy"] ** 2 == pytest.approx(share, rel=0.01)


def test_files_keep_readers_and_a_digest_tells_them_apart(found, tmp_path):
    gains = Gains({UNIT: np.full(D, 2.0, np.float32)}, {UNIT: found}, path="direct")
    back = load_gains(save_gains(gains, tmp_path / "mine"))
    kept = back.spectra[UNIT]
    assert isinstance(kept, Uncorrelated)
    np.testing.assert_allclose(kept.readers, found.readers, rtol=1e-6)
    np.testing.assert_allclose(kept.moment, found.moment, rtol=1e-6, atol=1e-9)
    assert not centre_of(kept).any()
    assert gains_digest(back) == gains_digest(gains)
    other = replace(found, readers=found.readers * 1.1)
    assert gains_digest(replace(gains, spectra={UNIT: other})) != gains_digest(gains)
    with pytest.raises(InputError, match="readers"):
        check_gains(replace(gains, spectra={UNIT: replace(found, readers=found.readers[:2])}))
    with pytest.raises(InputError, match="moment"):
        check_gains(replace(gains, spectra={UNIT: replace(found, moment=found.moment[:2])}))


def test_files_from_before_moments_were_of_components_uncorrelated_over_all_clips(
    vectors, tmp_path, monkeypatch
):
    found = uncorrelated(fit_spectrum(vectors))
    gains = Gains({UNIT: np.full(D, 2.0, np.float32)}, {UNIT: found}, path="direct")
    # as the third schema wrote them
    monkeypatch.setattr(gain_files, "OF_READERS", ("readers",))
    monkeypatch.setattr(gain_files, "SCHEMA_VERSION", 3)
    kept = load_gains(save_gains(gains, tmp_path / "older")).spectra[UNIT]
    assert isinstance(kept, Uncorrelated)
    np.testing.assert_allclose(kept.moment, found.moment, atol=1e-5 * found.moment.max())


def test_units_that_do_not_vary_along_an_axis_read_no_noise():
    draw = np.random.default_rng(4)
    faint = draw.normal(size=(N, 2)) * [1.0, 1e-9]
    found = uncorrelated(fit_spectrum(faint))
    lengths = np.linalg.norm(found.basis, axis=1)
    assert lengths.max() / lengths.min() == pytest.approx(1 / FAINTEST, rel=1e-6)
