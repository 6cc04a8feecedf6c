"""The solver of direct-path gains: optimal, the same every time, within what it is allowed."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from direct_sources import other_clips, two_stages
from scipy.optimize import minimize

from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import MLP, JointHead, ResidualMLP
from residual_audio.reweight.agreement import REFITS, other_part
from residual_audio.reweight.axes import direct_spectra
from residual_audio.reweight.direct_loss import DirectLoss
from residual_audio.reweight.edit_size import edit_size, likeness, stability
from residual_audio.reweight.fitting import Lesson, fit_direct
from residual_audio.reweight.gains import blend
from residual_audio.reweight.keep_in_place import (
    KeepInPlace,
    Reference,
    _answer_root,
    held_in,
)
from residual_audio.reweight.objectives import objective
from residual_audio.reweight.path import FREE, Regularity, StrengthPath
from residual_audio.reweight.penalty import Bounds, Penalty
from residual_audio.reweight.solver import Stopping, _Inverse, solve
from residual_audio.reweight.terms import DirectTerms, apply_direct, direct_terms
from residual_audio.types import parse_units

N, D, CLASSES = 60, 12, 4
LABELS = np.arange(N) % CLASSES
HEADS = ["s0.b0.h0", "s0.b0.h1", "s1.b0.h0", "s1.b0.h1"]
TIGHT = Stopping(1e-7, 2000)


@pytest.fixture(scope="module")
def parts() -> Contributions:
    return Contributions(two_stages(LABELS, D))


@pytest.fixture(scope="module")
def terms(parts) -> DirectTerms:
    return direct_terms(
        parts, direct_spectra(parts, parse_units(HEADS, parts.sites)), mean_gains=True
    )


@pytest.fixture(scope="module")
def head() -> MLP:
    torch.manual_seed(0)
    return MLP(D, 16, 8).requires_grad_(False)


@pytest.fixture(scope="module")
def judge() -> Judge:
    classes = [f"c{i}" for i in range(CLASSES)]
    texts = np.random.default_rng(3).normal(size=(CLASSES, 8))
    return Judge.for_labels([classes[i] for i in LABELS], classes, texts, scale=10.0)


def exact(terms: DirectTerms, head: JointHead, judge: Judge) -> DirectLoss:
    precise = deepcopy(head).double().requires_grad_(False)
    cross_entropy = objective("cross-entropy", judge)
    return DirectLoss(terms.double(), precise.from_latent, cross_entropy, judge)


@pytest.fixture(scope="module")
def loss(terms, judge) -> DirectLoss:
    """Of a head without kinks."""
    torch.manual_seed(0)
    return exact(terms, ResidualMLP(D, 8), judge)


@pytest.fixture(scope="module")
def kinked(terms, head, judge) -> DirectLoss:
    return exact(terms, head, judge)


@pytest.fixture(scope="module")
def lesson(judge) -> Lesson:
    held = np.arange(N) % 5 == 0
    return Lesson(judge, np.flatnonzero(~held), np.flatnonzero(held))


def penalty_of(terms: DirectTerms, **strengths) -> Penalty:
    return Penalty(terms.weights(), terms.owner(), **strengths)


def test_the_slope_is_the_derivative_of_the_loss(loss):
    rng = np.random.default_rng(0)
    x, d = rng.normal(size=(2, loss.terms.n_gains)) * 0.3
    step = 1e-5
    ahead, behind = (loss(x + sign * step * d)[0] for sign in (1, -1))
    assert loss(x)[1] @ d == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)


def test_energy_is_the_mean_squared_change_of_latents(terms):
    rng = np.random.default_rng(1)
    x = rng.normal(size=terms.n_gains)
    root = rng.normal(size=(D, D))
    change = (terms.shifted(x) - terms.base).double().numpy() @ root
    energy = terms.energy(root @ root.T)
    # centred amplitudes: crossed with constant means they vanish only on the average
    assert x @ energy @ x == pytest.approx((change**2).sum(1).mean(), rel=1e-3)
    some = np.array([0, 3, 5, terms.n_gains - 1])
    # products in float32: what vanishes does so as far as its neighbours are rounded
    part, rounded = terms.only(some).energy(root @ root.T), 1e-6 * np.abs(energy).max()
    np.testing.assert_allclose(part, energy[np.ix_(some, some)], rtol=1e-6, atol=rounded)


@pytest.mark.parametrize("kind", ["group", "lasso", "ridge"])
@pytest.mark.parametrize("bounds", [Bounds(), Bounds(0, 1.5)], ids=["free", "bounded"])
def test_optimality_conditions_hold_at_the_solution(loss, kind, bounds):
    terms = loss.terms
    penalty = penalty_of(terms, bounds=bounds, **{kind: 2e-3})
    found = solve(loss, penalty, stop=TIGHT)
    assert found.converged
    x, w = found.x, penalty.weights
    u, slope = w * x, loss(x)[1] / w
    unit = np.abs(loss(np.zeros_like(x))[1] / w).max()
    pull = slope + penalty.gradient(u)  # stationary where R is smooth and no bound is met
    low, high = (u <= penalty.low), (u >= penalty.high)
    free = penalty.free(u)
    assert free.any()
    np.testing.assert_allclose(pull[free] / unit, 0, atol=1e-5)
    assert (pull[low] >= -1e-6).all()
    assert (pull[high] <= 1e-6).all()
    if kind == "group":
        still = penalty.norms(u) == 0
        outside = penalty.norms(slope)[still]
        assert (outside <= penalty.group * penalty.roots[still] * (1 + 1e-5)).all()
    if kind == "lasso":
        assert (np.abs(slope[u == 0]) <= penalty.lasso * (1 + 1e-5)).all()


@pytest.mark.parametrize("which", ["loss", "kinked"])
def test_the_solution_is_no_worse_than_that_of_another_method(which, request):
    loss = request.getfixturevalue(which)
    penalty = penalty_of(loss.terms, bounds=Bounds(0, 1.5), ridge=1e-3)
    w = penalty.weights

    def whole(u):
        value, slope = loss(u / w)
        return value + penalty.value(u), slope / w + penalty.ridge * u

    box = list(zip(penalty.low, penalty.high, strict=True))
    other = minimize(whole, np.zeros(len(w)), jac=True, method="L-BFGS-B", bounds=box,
                     options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10})  # fmt: skip
    found = solve(loss, penalty, stop=TIGHT)
    assert found.converged
    assert found.value <= other.fun + (1e-8 if which == "loss" else 1e-4)


def test_the_proximal_step_minimises_what_it_says():
    rng = np.random.default_rng(4)
    penalty = Penalty(
        rng.uniform(0.5, 2, 6), np.array([0, 0, 0, 1, 1, 1]), Bounds(0, 1.4), 0.3, 0.2, 0.5
    )
    v, step = rng.normal(size=6) * 3, 0.7
    best = penalty.prox(v, step)

    def value(u):
        return ((u - v) ** 2).sum() / (2 * step) + penalty.value(u)

    for _ in range(300):
        other = np.clip(best + rng.normal(size=6) * 0.05, penalty.low, penalty.high)
        assert value(best) <= value(other) + 1e-9


def test_nothing_moves_where_the_penalty_is_large_and_some_units_where_it_is_less(loss):
    for kind in ("group", "lasso"):
        path = StrengthPath(loss, Regularity(kind))
        assert not path.at(1.0001, TIGHT).x.any()
        assert path.at(0.6, TIGHT).x.any()
    found = StrengthPath(loss, Regularity("group")).at(0.9, TIGHT).x
    moved = np.unique(loss.terms.owner()[found != 0])
    assert 0 < len(moved) < len(HEADS)


def test_two_fits_give_the_same_bits(terms, head, lesson):
    one, two = (fit_direct(terms, head, lesson, Regularity()) for _ in range(2))
    assert torch.equal(one.values, two.values)
    assert one.notes == two.notes


@pytest.mark.parametrize("how", [Regularity(), Regularity("ridge"), FREE], ids=str)
def test_fitting_helps_keeps_the_bounds_and_converges(terms, head, lesson, judge, how):
    found = fit_direct(terms, head, lesson, how)
    assert found.solution is not None
    assert found.solution.converged
    values = found.values.numpy()
    assert (values >= how.bounds.low).all()
    assert (values <= how.bounds.high).all()
    before, after = found.notes["held_out_before"], found.notes["held_out_loss"]
    assert after < before
    joint = head.from_latent(terms.latent(found.values))
    right = judge.measure(joint, torch.arange(N), joint)["correct"].mean()
    at_first = head.from_latent(terms.base)
    assert right > judge.measure(at_first, torch.arange(N), at_first)["correct"].mean()


def test_chosen_gains_are_held_until_two_parts_of_the_clips_agree(terms, head, lesson):
    found = {
        demanded: fit_direct(terms, head, lesson, Regularity("group", agreement=demanded))
        for demanded in (0.0, 0.5, 0.999999)
    }
    assert found[0.0].agreed is None
    loose, strict = found[0.5].agreed, found[0.999999].agreed
    assert loose is not None
    assert loose.likeness >= 0.5
    assert strict is not None
    assert strict.refit == max(REFITS)  # never reached, and said
    assert strict.likeness < 0.999999
    assert found[0.999999].notes["agreement"] == strict.likeness
    assert strict.refit > loose.refit
    far = {demanded: float((one.values - 1).norm()) for demanded, one in found.items()}
    assert far[0.999999] < far[0.5]


def test_the_other_part_leaves_out_other_groups(lesson):
    groups = [f"g{i // 2}" for i in range(N)]
    held = np.arange(N)[np.arange(N) // 2 % 5 == 0]
    train = np.setdiff1d(np.arange(N), held)
    part = other_part(train, held, groups)
    assert set(held) <= set(part)
    left_out = set(range(N)) - set(part)
    assert len(left_out) == pytest.approx(len(held), rel=0.4)
    assert not {groups[i] for i in left_out} & {groups[i] for i in part}


def test_labels_without_meaning_teach_nothing(terms, head, judge):
    rng = np.random.default_rng(0)
    shuffled = replace(judge, positive=judge.positive[rng.permutation(N)])
    held = np.arange(N) % 3 == 0
    lesson = Lesson(shuffled, np.flatnonzero(~held), np.flatnonzero(held))
    flat = terms.double()
    # contributions of another draw say nothing about these labels
    other = replace(flat, amplitudes=flat.amplitudes[rng.permutation(N)]).at(np.arange(N))
    found = fit_direct(replace(terms, amplitudes=other.amplitudes.float()), head,
                       lesson, Regularity(strengths=(0.9, 0.3)))  # fmt: skip
    chosen = [one for one in found.judged if one.strength == found.strength]
    assert chosen[0].moved <= 2


def test_edits_are_measured_and_compared(terms):
    x = np.zeros(terms.n_gains)
    x[0], x[-1] = -2.0, 0.5
    gains = terms.gains(torch.from_numpy(1 + x).float())
    size = edit_size(gains)
    assert (size["moved"], size["units_moved"], size["units"]) == (2, 2, 4)
    assert size["negative"] == pytest.approx(1 / terms.n_gains)
    assert likeness(gains, gains) == pytest.approx(1)
    assert likeness(gains, terms.gains(torch.from_numpy(1 - x).float())) == pytest.approx(-1)
    assert stability([gains, blend(gains, 0.3)]) == pytest.approx(1)
    assert np.isnan(likeness(gains, blend(gains, 0.0)))


def test_blend_of_nothing_is_the_identity_and_of_all_the_gains_to_the_bit(parts, terms):
    rng = np.random.default_rng(5)
    gains = terms.gains(torch.from_numpy(rng.normal(size=terms.n_gains)).float())
    np.testing.assert_array_equal(apply_direct(parts, blend(gains, 0.0)), terms.base.numpy())
    np.testing.assert_array_equal(
        apply_direct(parts, blend(gains, 1.0)), apply_direct(parts, gains)
    )


@pytest.fixture(scope="module")
def reference(head) -> Reference:
    return other_clips(head, LABELS, D)


def test_what_is_kept_costs_no_more_than_allowed(terms, head, lesson, reference):
    free = fit_direct(terms, head, lesson, FREE)
    keep = KeepInPlace((reference,), max_loss=0.15)
    kept = fit_direct(terms, head, lesson, FREE, keep)
    assert kept.hold > 0
    assert all(cost.at_most <= 0.15 for cost in kept.costs)
    with torch.no_grad():
        before = head.from_latent(terms.base)
        moved = [head.from_latent(terms.latent(f.values)) - before for f in (free, kept)]
    assert moved[1].norm() < moved[0].norm()


def test_held_infinitely_strongly_nothing_changes(terms, head, lesson, reference):
    found = fit_direct(terms, head, lesson, FREE, KeepInPlace((reference,), max_loss=0.0))
    assert found.hold == np.inf
    assert torch.equal(found.values, torch.ones(terms.n_gains))


def test_a_strong_hold_keeps_reference_embeddings_in_place(kinked, terms, head, reference):
    (held,) = held_in([reference], terms, head)
    parts = (held.drift(np.arange(N), "embeddings"),)
    shifts = []
    for strength in (0.0, 1.0, 1e4):
        x = StrengthPath(kinked.holding(parts, strength), FREE).at(1e-3).x
        with torch.no_grad():
            pair = [torch.nn.functional.normalize(head.from_latent(z), dim=-1)
                    for z in (held.terms.base, held.terms.shifted(x))]  # fmt: skip
        shifts.append(float((pair[0] - pair[1]).square().sum(1).mean()))
    assert shifts[0] > shifts[1] > shifts[2]
    assert shifts[2] < 1e-2 * shifts[0]


def test_the_slope_of_what_is_held_is_that_of_its_value(terms, head, reference):
    held = held_in([reference], terms, head)[0]
    drift = replace(held, terms=held.terms.double(), head=deepcopy(head).double()).drift(
        np.arange(N), "answers"
    )
    still, at_rest = drift(np.zeros(terms.n_gains))
    assert still == 0
    assert not at_rest.any()
    rng = np.random.default_rng(0)
    x, step = rng.normal(size=terms.n_gains), 1e-6 * rng.normal(size=terms.n_gains)
    expected = (drift(x + step)[0] - drift(x - step)[0]) / 2
    assert float(drift(x)[1] @ step) == pytest.approx(expected, rel=1e-4)
    some = np.arange(terms.n_gains)[::2]
    few = np.where(np.isin(np.arange(terms.n_gains), some), x, 0.0)
    assert drift.only(some)(x[some])[0] == pytest.approx(drift(few)[0])


def test_answers_are_held_where_the_model_is_sure_and_free_where_no_text_looks(head, reference):
    sure = replace(reference, judge=replace(reference.judge, scale=1e3))
    drifted = []
    for one in (reference, sure):
        root = _answer_root(one.judge)
        assert root.shape[1] == len(one.judge.texts) - 1
        moved = torch.randn(8, generator=torch.Generator().manual_seed(0))
        logits = one.judge.scale * (one.judge.texts @ moved)
        assert float((moved @ root).square().sum()) == pytest.approx(
            float(logits.var(correction=0)), rel=1e-4
        )
        drifted.append(float((moved @ root).norm()))
        # what all texts of the reference see alike is seen by none
        unseen = torch.linalg.svd(root.T)[2][root.shape[1] :]
        assert float((unseen @ root).abs().max()) < 1e-4 * one.judge.scale
    assert drifted[1] == pytest.approx(100 * drifted[0], rel=1e-4)


def test_an_agreement_is_a_cosine():
    with pytest.raises(InputError, match="cosine"):
        Regularity(agreement=1.5)


def test_bounds_must_hold_the_identity():
    with pytest.raises(InputError, match="identity"):
        Bounds(1.5, 4)


def test_the_inverse_of_the_model_solves_and_measures():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(40, 40))
    bends = root @ root.T / 40 + 0.1 * np.eye(40)
    inverse, v = _Inverse(bends.astype(np.float32)), 1e6 * rng.normal(size=40)
    want = np.linalg.solve(bends, v)
    np.testing.assert_allclose(inverse(v), want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
    assert inverse.norm(v) == pytest.approx(v @ want, rel=1e-4)
