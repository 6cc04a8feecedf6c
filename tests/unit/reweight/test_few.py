"""Few units with bounded gains in axes of their own: optimal, sparse, the same every time."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
import torch
from direct_sources import two_stages

from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import MLP, ResidualMLP
from residual_audio.reweight import few as few_units
from residual_audio.reweight.axes import ALL, direct_spectra, kept_parts
from residual_audio.reweight.edit_size import edit_size
from residual_audio.reweight.few import STRONGER, Few, fit_few, one_gain_a_unit
from residual_audio.reweight.fitting import Lesson
from residual_audio.reweight.gains import blend, coarse
from residual_audio.reweight.objectives import objective
from residual_audio.reweight.path import left_out, standard_error
from residual_audio.reweight.penalty import UNBOUNDED, Bounds
from residual_audio.reweight.solver import Stopping
from residual_audio.reweight.terms import DirectTerms, apply_direct, direct_terms
from residual_audio.reweight.turned import (
    Roots,
    Shape,
    TurnedClips,
    TurnedEdit,
    _shaped,
    along_axes,
)
from residual_audio.reweight.turned_solver import at_rest, nearest_within, solve_turned, steep
from residual_audio.reweight.uncorrelated import uncorrelated
from residual_audio.types import parse_units

N, D, CLASSES = 60, 12, 4
LABELS = np.arange(N) % CLASSES
HEADS = ["s0.b0.h0", "s0.b0.h1", "s1.b0.h0", "s1.b0.h1"]
TIGHT = Stopping(1e-7, 20000, descent=1e-15)
NARROW = Bounds(0.5, 1.5)


@pytest.fixture(scope="module")
def parts() -> Contributions:
    return Contributions(two_stages(LABELS, D))


@pytest.fixture(scope="module", params=["orthonormal axes", "uncorrelated components"])
def terms(parts, request) -> DirectTerms:
    spectra = direct_spectra(parts, parse_units(HEADS, parts.sites))
    if request.param != "orthonormal axes":
        kept = kept_parts(spectra, ALL)
        spectra = {unit: uncorrelated(spectrum) for unit, spectrum in kept.items()}
    return direct_terms(parts, spectra, mean_gains=True)


@pytest.fixture(scope="module")
def judge() -> Judge:
    classes = [f"c{i}" for i in range(CLASSES)]
    texts = np.random.default_rng(3).normal(size=(CLASSES, 8))
    return Judge.for_labels([classes[i] for i in LABELS], classes, texts, scale=10.0)


@pytest.fixture(scope="module")
def head() -> MLP:
    torch.manual_seed(0)
    return MLP(D, 16, 8).requires_grad_(False)


@pytest.fixture(scope="module")
def lesson(judge) -> Lesson:
    held = np.arange(N) % 5 == 0
    return Lesson(judge, np.flatnonzero(~held), np.flatnonzero(held))


@pytest.fixture(autouse=True)
def few_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_units, "LEAST", 1)


def clips_of(terms: DirectTerms, judge: Judge, shape: Shape = "symmetric") -> TurnedClips:
    """Under a head without kinks, in double precision."""
    torch.manual_seed(0)
    smooth, precise = ResidualMLP(D, 8).double().requires_grad_(False), terms.double()
    loss, rows = objective("cross-entropy", judge), torch.arange(N)
    return TurnedClips(
        precise, lambda latent: loss(smooth.from_latent(latent), rows), Roots.of(precise), shape
    )


def drawn(clips: TurnedClips, seed: int) -> TurnedEdit:
    made = torch.Generator().manual_seed(seed)
    empty = clips.nothing()
    turns = torch.randn(empty.turns.shape, generator=made, dtype=empty.turns.dtype)
    means = torch.randn(empty.means.shape, generator=made, dtype=empty.means.dtype)
    there = torch.arange(clips.width) < clips.roots.sizes[:, None]
    turns = (turns + turns.transpose(1, 2)) * there[:, :, None] * there[:, None]
    return TurnedEdit(turns, means)


def test_the_slope_of_an_edit_is_the_derivative_of_the_loss(terms, judge):
    clips = clips_of(terms, judge)
    at, along = drawn(clips, 0), drawn(clips, 1)
    ahead, behind = (clips.value(clips.moved(at.plus(along, s))) for s in (1e-5, -1e-5))
    slope = clips.slope(clips.moved(at))[1]
    assert slope.dot(along) == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


def test_one_gain_a_unit_is_felt_by_the_unit_at_its_own_width(terms, judge):
    clips = clips_of(terms, judge, "scalar")
    clips = clips.only(torch.arange(clips.units))
    assert len(set(clips.roots.sizes.tolist())) > 1
    own = torch.arange(clips.width) < clips.roots.sizes[:, None]
    gains = torch.linspace(-1, 1, clips.units, dtype=torch.float64)[:, None]
    along = TurnedEdit(torch.diag_embed(gains * own), clips.nothing().means)
    ahead, behind = (clips.value(clips.moved(along.plus(along, s))) for s in (1e-5, -1e-5))
    slope = clips.slope(clips.moved(along))[1]
    assert slope.dot(along) == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


def test_the_nearest_edit_within_bounds_is_within_and_no_member_is_nearer(terms, judge):
    clips = clips_of(terms, judge)
    wild = drawn(clips, 0)
    found = nearest_within(wild, NARROW, clips.roots)
    plain = clips.roots.plain(found)
    values = torch.linalg.eigvalsh(plain.turns)
    assert values.min() >= -0.5 - 1e-9
    assert values.max() <= 0.5 + 1e-9
    assert plain.means.abs().max() <= 0.5 + 1e-9
    gap = wild.plus(found, -1.0)
    for seed in range(1, 6):  # of a convex set: all members lie behind the nearest
        other = nearest_within(drawn(clips, seed), NARROW, clips.roots)
        assert gap.dot(other.plus(found, -1.0)) <= 1e-9


@pytest.mark.parametrize("bounds", [UNBOUNDED, NARROW], ids=["free", "bounded"])
@pytest.mark.parametrize("shape", get_args(Shape))
def test_optimality_conditions_hold_at_the_solution(terms, judge, bounds, shape):
    clips = clips_of(terms, judge, shape)
    ridge = 0.3 * steep(at_rest(clips))
    found = solve_turned(clips, bounds, ridge, stop=TIGHT)
    assert found.converged
    assert found.residual < 1e-5
    slope = clips.slope(clips.moved(found.edit))[1].plus(found.edit, ridge)
    for seed in range(5):  # no way within the bounds leads down
        other = drawn(clips, seed)
        other = TurnedEdit(_shaped(other.turns, shape), other.means)
        other = nearest_within(other, bounds, clips.roots)
        away = other.plus(found.edit, -1.0)
        assert slope.dot(away) >= -1e-5 * away.dot(away) ** 0.5


@pytest.mark.parametrize("bounds", [UNBOUNDED, NARROW], ids=["free", "bounded"])
def test_what_stops_at_its_cap_says_so(terms, judge, bounds):
    clips = clips_of(terms, judge)
    assert not solve_turned(clips, bounds, 1e-6, stop=Stopping(1e-9, 5, descent=0.0)).converged


def test_axes_that_turn_reach_further_than_given_ones_under_the_same_bounds(terms, judge):
    values = []
    for shape in get_args(Shape):
        clips = clips_of(terms, judge, shape)
        values.append(solve_turned(clips, NARROW, 1e-4, stop=TIGHT).value)
    assert values[0] < values[1] < values[2]


def test_one_gain_a_unit_scales_whole_contributions(parts, head, lesson):
    principal = direct_spectra(parts, parse_units(HEADS, parts.sites))
    terms = direct_terms(parts, principal, mean_gains=True)
    found = fit_few(terms, head, lesson, Few(NARROW, share=0.5, shape="scalar"))
    spectra = {unit: coarse(spectrum) for unit, spectrum in terms.spectra.items()}
    whole = one_gain_a_unit(found, direct_terms(parts, spectra, mean_gains=True))
    assert edit_size(whole.terms.gains(whole.values))["units_moved"] == 2
    np.testing.assert_allclose(
        whole.terms.latent(whole.values).numpy(),
        found.terms.latent(found.values).numpy(),
        atol=1e-4,
    )


def test_an_edit_along_its_axes_is_the_edit(terms, judge, parts):
    clips = clips_of(terms, judge)
    edit = nearest_within(drawn(clips, 0), NARROW, clips.roots)
    edit = TurnedEdit(edit.turns.clone(), edit.means.clone())
    edit.turns[1] = 0
    moved = clips.moved(edit).numpy()
    along, x = along_axes(terms, clips.roots.plain(edit))
    np.testing.assert_allclose((along.shifted(x) - terms.here).numpy(), moved, atol=1e-4)
    gains = along.gains(torch.from_numpy(1.0 + x))
    np.testing.assert_allclose(apply_direct(parts, gains) - terms.here.numpy(), moved, atol=1e-4)
    assert (gains.gains[HEADS[1]] == 1).all()
    np.testing.assert_array_equal(gains.spectra[HEADS[1]].basis, terms.spectra[HEADS[1]].basis)


def test_few_units_move_within_bounds_and_the_others_stay_exactly_at_1(terms, head, lesson):
    found = fit_few(terms, head, lesson, Few(NARROW, share=0.5))
    gains = found.terms.gains(found.values)
    size = edit_size(gains)
    assert 0 < size["units_moved"] <= 2
    values = np.concatenate([*gains.gains.values(), list(gains.means.values())])
    assert values.min() >= 0.5
    assert values.max() <= 1.5
    still = [unit for unit in gains.gains if gains.means[unit] == 1]
    assert len(still) >= 2
    assert all((gains.gains[unit] == 1).all() for unit in still)
    assert found.said is not None
    assert found.said.loss < found.judged[0].loss
    # folding away: blended by nothing it is the identity, by everything itself
    np.testing.assert_array_equal(
        found.terms.latent(found.terms.vector(blend(gains, 0.0))).numpy(), terms.base.numpy()
    )
    np.testing.assert_array_equal(
        found.terms.vector(blend(gains, 1.0)).numpy(), found.values.numpy()
    )


def test_two_fits_give_the_same_bits(terms, head, lesson):
    one, two = (fit_few(terms, head, lesson, Few(share=0.5)) for _ in range(2))
    assert torch.equal(one.values, two.values)
    for unit, spectrum in one.terms.spectra.items():
        np.testing.assert_array_equal(spectrum.basis, two.terms.spectra[unit].basis)


def test_units_are_taken_in_one_order_by_how_steeply_the_loss_falls(terms, head, lesson):
    loss = lesson.loss(terms, head, lesson.everyone)
    taken = [few_units.most_worth(loss, head, n, Few()) for n in (1, 2, 3, 4)]
    for fewer, more in pairwise(taken):
        assert set(fewer) < set(more)
    # along given axes the slope is that of the loss in its gains
    steepness = np.bincount(terms.owner(), loss(np.zeros(terms.n_gains))[1] ** 2)
    assert few_units.most_worth(loss, head, 1, Few(shape="diagonal")) == [int(steepness.argmax())]


def test_a_stronger_ridge_makes_a_smaller_edit_and_parts_that_agree(terms, head, lesson):
    sizes = []
    for ridge in (0.3, 3.0):
        found = fit_few(terms, head, lesson, Few(share=1.0, ridge=ridge))
        sizes.append(edit_size(found.terms.gains(found.values))["energy"])
    assert sizes[1] < sizes[0]
    asked = fit_few(terms, head, lesson, Few(share=1.0, agreement=0.999))
    assert asked.agreed is not None
    assert asked.agreed.refit in STRONGER
    free = fit_few(terms, head, lesson, Few(share=1.0, agreement=0.0))
    assert free.agreed is None
    assert free.strength <= few_units.FIRST


def test_labels_that_say_nothing_teach_nothing(terms, head, judge):
    rng = np.random.default_rng(0)
    shuffled = Judge(judge.texts, judge.positive[rng.permutation(N)], judge.scale)
    held = np.arange(N) % 2 == 0
    lesson = Lesson(shuffled, np.flatnonzero(~held), np.flatnonzero(held))
    found = fit_few(terms, head, lesson, Few(Bounds(0.0, 1.0)))
    after = found.said
    assert after is not None
    assert after.loss <= found.judged[0].loss


def test_without_held_out_clips_all_that_may_move_does(terms, head, judge):
    lesson = Lesson(judge, np.arange(N), np.arange(0))
    found = fit_few(terms, head, lesson, Few(share=0.5))
    assert edit_size(found.terms.gains(found.values))["units_moved"] == 2
    assert found.said is None


def test_the_error_of_a_difference_forgets_what_is_hard_for_both():
    rng = np.random.default_rng(0)
    joint, groups = torch.from_numpy(rng.normal(size=(40, 3))), [str(i // 2) for i in range(40)]

    def mean(values, rows):
        return values.sum(1).mean()

    one, two = (left_out(joint + shift, groups, mean) for shift in (0.0, 0.1))
    assert standard_error(one) > 0.1
    assert standard_error(one - two) < 1e-9
    assert standard_error(left_out(joint, ["a", "b"] * 20, mean)) == 0.0


def test_of_a_handful_of_units_all_may_move(monkeypatch):
    monkeypatch.setattr(few_units, "LEAST", 8)
    assert Few().numbers(3) == [1, 2, 3]
    assert Few().numbers(24) == [1, 2, 4, 8]
    assert Few().numbers(184) == [7, 14, 29, 58]


@pytest.mark.parametrize(
    "wrong", [{"share": 0.0}, {"share": 1.5}, {"agreement": 1.0}, {"ridge": 0.0}]
)
def test_what_cannot_be_asked_for_is_refused(wrong):
    with pytest.raises(InputError):
        Few(**wrong)
