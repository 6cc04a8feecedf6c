"""Edits that turn while references are held: within what may be lost, nothing where all is held."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from direct_sources import other_clips, two_stages

from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import MLP, JointHead, ResidualMLP
from residual_audio.reweight.axes import ALL, direct_spectra, kept_parts
from residual_audio.reweight.few import FIRST, Few, fit_few
from residual_audio.reweight.fitting import Lesson
from residual_audio.reweight.held_few import HOLDS, fit_held_few, held_edits
from residual_audio.reweight.keep_in_place import KeepInPlace, Reference, drifts, held_in
from residual_audio.reweight.penalty import UNBOUNDED, Bounds
from residual_audio.reweight.terms import DirectTerms, direct_terms
from residual_audio.reweight.turned import Roots, along_axes
from residual_audio.reweight.turned_fit import ON_THE_WAY, beside, latents_under
from residual_audio.reweight.uncorrelated import uncorrelated
from residual_audio.types import parse_units

N, D, CLASSES = 60, 12, 4
LABELS = np.arange(N) % CLASSES
HEADS = ["s0.b0.h0", "s0.b0.h1", "s1.b0.h0", "s1.b0.h1"]
FREE, NARROW = Few(UNBOUNDED, share=1.0), Few(Bounds(0.0, 2.0), share=1.0)


@pytest.fixture(scope="module")
def terms() -> DirectTerms:
    parts = Contributions(two_stages(LABELS, D))
    spectra = kept_parts(direct_spectra(parts, parse_units(HEADS, parts.sites)), ALL)
    slanted = {unit: uncorrelated(spectrum) for unit, spectrum in spectra.items()}
    return direct_terms(parts, slanted, mean_gains=True)


@pytest.fixture(scope="module", params=[MLP, ResidualMLP], ids=["product first", "no product"])
def head(request) -> JointHead:
    torch.manual_seed(0)
    made = MLP(D, 16, 8) if request.param is MLP else ResidualMLP(D, 8)
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def reference(head) -> Reference:
    return other_clips(head, LABELS, D)


@pytest.fixture(scope="module")
def lesson() -> Lesson:
    classes = [f"c{i}" for i in range(CLASSES)]
    texts = np.random.default_rng(3).normal(size=(CLASSES, 8))
    judge = Judge.for_labels([classes[i] for i in LABELS], classes, texts, scale=10.0)
    held = np.arange(N) % 5 == 0
    return Lesson(judge, np.flatnonzero(~held), np.flatnonzero(held))


@pytest.mark.parametrize("how", [FREE, NARROW], ids=["free", "bounded"])
def test_what_is_kept_costs_no_more_than_allowed(terms, head, lesson, reference, how):
    keep = KeepInPlace((reference,), max_loss=0.2)
    found = fit_held_few(terms, head, lesson, how, keep)
    assert found.hold in HOLDS
    assert all(cost.at_most <= 0.2 for cost in found.costs)
    assert found.said is not None
    assert found.said.loss < found.judged[0].loss
    assert how.bounds.low <= float(found.values.min())
    assert float(found.values.max()) <= how.bounds.high
    again = fit_held_few(terms, head, lesson, how, keep)
    assert torch.equal(found.values, again.values)


def test_where_nothing_may_be_lost_nothing_moves(terms, head, lesson, reference):
    found = fit_held_few(terms, head, lesson, FREE, KeepInPlace((reference,), max_loss=0.0))
    assert found.hold == np.inf
    assert found.strength == np.inf
    assert found.said is found.judged[0]
    assert found.notes["held_out_top1"] == found.notes["held_out_top1_before"]
    assert all(cost.lost == 0 for cost in found.costs)
    assert torch.equal(found.values, torch.ones(terms.n_gains))


def test_without_held_out_clips_the_loosest_hold_that_is_allowed_is_taken(
    terms, head, lesson, reference
):
    every = Lesson(lesson.judge, np.arange(N), np.arange(0))
    found = fit_held_few(terms, head, every, FREE, KeepInPlace((reference,), max_loss=1.0))
    assert found.hold == HOLDS[0]
    assert found.said is None


@pytest.mark.parametrize("how", [FREE, NARROW], ids=["free", "bounded"])
def test_references_go_less_far_the_more_strongly_they_are_held(
    terms, head, lesson, reference, how
):
    (held,) = held_in([reference], terms, head)
    (drift,) = drifts([held], "answers", everyone=False)
    roots = Roots.of(terms)
    fit = how.fit(lesson.loss(terms, head, lesson.train), head, roots, [drift])
    far = []
    for _, edit in held_edits(fit, fit.units(4), 0.1):
        away = head.from_latent(latents_under(edit, drift.terms, roots))
        far.append(float(drift.of_joint(away)))
        # along its axes it is the same edit
        along, x = along_axes(terms, roots.plain(edit))
        np.testing.assert_allclose(
            along.shifted(x), latents_under(edit, terms, roots), rtol=1e-3, atol=1e-3
        )
    assert far[-1] < 0.2 * far[0]
    assert far == sorted(far, reverse=True)


def test_held_not_at_all_references_change_nothing(terms, head, lesson, reference):
    (drift,) = drifts(held_in([reference], terms, head), "answers", everyone=True)
    loss, roots = lesson.loss(terms, head, lesson.train), Roots.of(terms)
    alone, among = NARROW.fit(loss, head, roots), NARROW.fit(loss, head, roots, [drift])
    assert torch.equal(alone.order, among.order)
    one, two = (fit.solve(fit.units(2), 0.3, None, ON_THE_WAY) for fit in (alone, among))
    assert two.value == pytest.approx(one.value, rel=1e-4)


def test_a_hold_gives_up_some_of_what_is_learned(terms, head, lesson, reference):
    free = fit_few(terms, head, lesson, replace(FREE, ridge=FIRST))
    kept = fit_held_few(terms, head, lesson, FREE, KeepInPlace((reference,), max_loss=0.2))
    with torch.no_grad():
        before = head.from_latent(terms.base)
        moved = [head.from_latent(f.terms.latent(f.values)) - before for f in (free, kept)]
    assert moved[1].norm() < moved[0].norm()


def test_clips_beside_each_other_keep_their_latents(terms):
    some = [terms.at(np.arange(5)), terms.at(np.arange(5, 12))]
    assert torch.equal(beside(some).here, terms.at(np.arange(12)).here)
    assert beside(some[:1]) is some[0]


def test_a_kept_reference_frees_gains_unless_bounds_are_asked_for():
    kept = ResiDual(keep=("run",))
    assert kept.chooses_few
    assert (kept.turning, kept.few.share, kept.limits) == ("learned", 1.0, UNBOUNDED)
    assert ResiDual(keep=("run",), bounds=(0.0, 4.0)).limits == Bounds(0.0, 4.0)
    assert ResiDual(keep=("run",), share=0.2).few.share == 0.2
    assert ResiDual().few.share == Few.share
    # along fixed axes, a second-order method
    assert not ResiDual(keep=("run",), axes="pca").chooses_few
    assert ResiDual(unbounded=True).turning == "pca"
    assert ResiDual(unbounded=True, axes="learned").chooses_few
    with pytest.raises(InputError, match="penalty few alone"):
        ResiDual(axes="learned", penalty="group")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"unbounded": True, "bounds": (0.0, 2.0)}, "one or the other"),
        ({"unbounded": True, "penalty": "group"}, "is a ridge"),
        ({"keep": ("run",), "penalty": "lasso"}, "is a ridge"),
        ({"penalty": "group", "ridge": 0.1}, "penalty few alone"),
        ({"keep": ("run",), "agreement": 0.9}, "agreement"),
        ({"ridge": 0.1, "agreement": 0.5}, "agreement"),
        ({"penalty": "ridge", "agreement": 0.9}, "agreement"),
        ({"path": "network", "agreement": 0.9}, "agreement"),
        ({"max_loss": 0.1}, "name some to keep"),
        ({"hold": "embeddings"}, "name some to keep"),
        ({"rates": (0.1,)}, "inside the network"),
    ],
)
def test_what_would_be_ignored_is_refused(asked, why):
    with pytest.raises(InputError, match=why):
        ResiDual(**asked)
    # the same with what it is for
    ResiDual(keep=("run",), penalty="lasso", bounds=(0.0, 4.0), max_loss=0.1, agreement=0.8)
    ResiDual(path="network", rates=(0.1,))
