"""The direct path: spectra by algebra, identity to the bit, linearity, fitting."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.reweight.axes import (
    Components,
    _of_few,
    chosen_units,
    direct_spectra,
    kept_parts,
    turn,
    what_gains_move,
)
from residual_audio.reweight.descent import FitSettings, fit
from residual_audio.reweight.descent_search import HeldOutClips, Search, search_and_fit
from residual_audio.reweight.gains import affine_of, coarse
from residual_audio.reweight.objectives import cross_entropy
from residual_audio.reweight.penalty import UNBOUNDED, Bounds
from residual_audio.reweight.terms import apply_direct, direct_terms
from residual_audio.types import Gains, Head, Spectrum, parse_unit, parse_units

N, D, CLASSES = 60, 12, 4


LABELS = np.arange(N) % CLASSES


def spectra_of(parts: Contributions, names: list[str], *rows) -> dict[str, Spectrum]:
    return direct_spectra(parts, parse_units(names, parts.sites), *rows)


ALL = ["s0.b0.h0", "s0.b0.h1", "s1.b0.h0", "s1.b0.h1"]


@pytest.mark.parametrize("few", [2, 5, 9])
@pytest.mark.parametrize("unit", ALL)
def test_spectra_of_few_clips_are_those_of_their_contributions(parts, unit, few):
    rows = np.arange(few)
    found = Components().of(spectra_of(parts, [unit], rows)[unit])
    own = parts.head(Head.parse(unit)).astype(np.float64)[rows]
    want = Components().of(fit_spectrum(own))
    k = len(found.basis)
    assert 0 < k < few or k <= min(few, D)
    np.testing.assert_allclose(found.eigenvalues, want.eigenvalues[:k], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.basis @ found.basis.T, np.eye(k), atol=1e-10)
    carried = (own - found.mean) @ found.basis.T @ found.basis  # the axes hold all that varies
    np.testing.assert_allclose(carried, own - own.mean(0), atol=1e-5)


def test_clips_that_are_all_alike_have_no_axes(parts):
    assert not len(_of_few(np.ones((4, 30)), None).basis)


@pytest.mark.parametrize("unit", ALL)
def test_spectra_by_algebra_equal_those_of_the_contributions(parts, unit):
    found = spectra_of(parts, [unit])[unit]
    want = fit_spectrum(parts.head(Head.parse(unit)).astype(np.float64))
    k = len(found.eigenvalues)
    np.testing.assert_allclose(found.eigenvalues, want.eigenvalues[:k], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.mean, want.mean, atol=1e-5)
    np.testing.assert_allclose(found.basis @ found.basis.T, np.eye(k), atol=1e-10)
    strong = found.eigenvalues > 1e-4 * found.eigenvalues[0]
    cosines = np.abs((found.basis * want.basis[:k]).sum(1))[strong]
    np.testing.assert_allclose(cosines, 1, atol=1e-4)


@pytest.mark.parametrize("units", [ALL, ["s0.b0.attention", "s1.b0.mlp"], ["s0", "s1"], ["output"]])
@pytest.mark.parametrize("rough", [False, True])
def test_gains_of_one_change_no_bit(parts, units, rough):
    spectra = spectra_of(parts, units)
    if rough:
        spectra = {u: coarse(s) for u, s in spectra.items()}
    terms = direct_terms(parts, spectra)
    assert terms.n_gains == (len(units) if rough else sum(len(s.basis) for s in spectra.values()))
    both = direct_terms(parts, spectra, mean_gains=True)
    assert both.n_gains == terms.n_gains + len(units)
    assert torch.equal(both.latent(torch.ones(both.n_gains)), torch.from_numpy(parts.latent))
    same = terms.latent(torch.ones(terms.n_gains))
    assert torch.equal(same, torch.from_numpy(parts.latent))


@pytest.mark.parametrize(("keep_mean", "mean_gains"), [(True, False), (True, True), (False, False)])
def test_latent_equals_gains_on_explicit_contributions(parts, keep_mean, mean_gains):
    spectra = kept_parts(spectra_of(parts, ALL), Components(k=2))
    spectra["s1.b0.mlp"] = coarse(spectra_of(parts, ["s1.b0.mlp"])["s1.b0.mlp"])
    terms = direct_terms(parts, spectra, keep_mean=keep_mean, mean_gains=mean_gains)
    values = torch.rand(terms.n_gains, generator=torch.Generator().manual_seed(0)) * 2
    gains = terms.gains(values)
    want = parts.latent.astype(np.float64)
    for unit in spectra:
        own = what_gains_move(parts, parse_unit(unit, parts.sites)).astype(np.float64)
        a, c = affine_of(gains, unit)
        want = want - own + own @ a + c
    np.testing.assert_allclose(terms.latent(values).numpy(), want, atol=2e-5)
    np.testing.assert_allclose(apply_direct(parts, gains), want, atol=2e-5)


def test_zero_gains_of_everything_leave_the_means(parts):
    spectra = spectra_of(parts, ALL)
    terms = direct_terms(parts, spectra)
    left = terms.latent(torch.zeros(terms.n_gains)).numpy()
    want = parts.latent - sum(
        parts.head(Head.parse(u)) - parts.head(Head.parse(u)).mean(0) for u in ALL
    )
    np.testing.assert_allclose(left, want, atol=2e-5)


def test_fitting_lowers_the_loss_and_touches_only_gains(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    value = torch.ones(terms.n_gains, requires_grad=True)
    loss = cross_entropy(judge)
    before = [p.clone() for p in head.parameters()]
    base = terms.base.clone()
    rows = np.arange(N)
    settings = FitSettings(epochs=20, learning_rate=0.05, batch_size=16)
    history = fit(lambda r: head(terms.latent(value, r)), [value], loss, rows, None, settings)
    assert history.train_loss[-1] < history.train_loss[0] - 0.05
    assert all(torch.equal(a, b) for a, b in zip(before, head.parameters(), strict=True))
    assert all(p.grad is None for p in head.parameters())
    assert torch.equal(base, terms.base)


def test_the_same_seed_gives_the_same_gains(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    found = []
    for _ in range(2):
        value = torch.ones(terms.n_gains, requires_grad=True)
        fit(
            lambda r, value=value: head(terms.latent(value, r)),
            [value],
            cross_entropy(judge),
            np.arange(40),
            np.arange(40, N),
            FitSettings(epochs=5),
        )
        found.append(value.detach().clone())
    assert torch.equal(*found)


def test_stopping_keeps_the_start_when_nothing_helps(parts, head, judge):
    """A held-out loss that falls only when the training loss rises: no epoch may be kept."""
    terms = direct_terms(parts, spectra_of(parts, ALL))
    value = torch.ones(terms.n_gains, requires_grad=True)
    loss = cross_entropy(judge)

    def adverse(joint, clips):
        return -loss(joint, clips) if len(clips) == N else loss(joint, clips)

    settings = FitSettings(epochs=4, patience=2, batch_size=16)
    chosen = search_and_fit(
        lambda rows: head(terms.latent(value, rows)),
        [value],
        adverse,
        np.arange(N),
        HeldOutClips(np.arange(N)),
        Search((settings,)),
    )
    assert chosen.epochs == 0
    assert torch.equal(value.detach(), torch.ones(terms.n_gains))


def test_the_chosen_epochs_are_run_again_from_the_start_on_all_clips(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    loss = cross_entropy(judge)
    settings = FitSettings(epochs=6, batch_size=16)
    found = torch.ones(terms.n_gains, requires_grad=True)
    search = Search((settings, FitSettings(epochs=6, batch_size=16, learning_rate=30.0)))
    train, held = (np.flatnonzero((np.arange(N) % 3 == 0) == part) for part in (False, True))
    chosen = search_and_fit(
        lambda r: head(terms.latent(found, r)), [found], loss, train, HeldOutClips(held), search
    )
    assert chosen.epochs > 0
    want = torch.ones(terms.n_gains, requires_grad=True)
    again = lambda r: head(terms.latent(want, r))  # noqa: E731
    fit(again, [want], loss, np.arange(N), None, chosen.settings, epochs=chosen.epochs)
    assert torch.equal(found, want)


def test_without_held_out_clips_a_fixed_number_of_epochs_is_run(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    value = torch.ones(terms.n_gains, requires_grad=True)
    chosen = search_and_fit(
        lambda r: head(terms.latent(value, r)),
        [value],
        cross_entropy(judge),
        np.arange(N),
        HeldOutClips(np.arange(0)),
        Search((FitSettings(strength=0.3),), few_shot_epochs=3, few_shot_rate=0.01),
    )
    assert chosen.notes == {"epochs": 3, "strength": 0.3}
    assert chosen.settings.learning_rate == 0.01


def test_a_lasso_leaves_most_gains_exactly_at_one(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    counts = []
    for strength in (0.0, 0.5):
        value = torch.ones(terms.n_gains, requires_grad=True)
        fit(
            lambda r, value=value: head(terms.latent(value, r)),
            [value],
            cross_entropy(judge),
            np.arange(N),
            None,
            FitSettings(epochs=10, penalty="lasso", strength=strength, learning_rate=0.02),
        )
        counts.append(int((value == 1).sum()))
    assert counts[0] == 0
    assert counts[1] > 0


def test_a_group_penalty_leaves_whole_units_at_one(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    moved = []
    for strength in (0.0, 0.8, 1.5):
        units = [[torch.ones(n, requires_grad=True)] for n in terms.sizes]
        values = [unit[0] for unit in units]
        fit(
            lambda r, values=values: head(terms.latent(torch.cat(values), r)),
            values,
            cross_entropy(judge),
            np.arange(N),
            None,
            FitSettings(epochs=10, penalty="group", strength=strength, learning_rate=0.02),
            units=units,
        )
        for value in values:  # all of a unit or nothing of it
            assert (value != 1).all() or (value == 1).all()
        moved.append(sum(bool((value != 1).any()) for value in values))
    assert moved[0] == len(terms.sizes) >= moved[1] > moved[2] == 0


def test_the_strongest_penalty_within_one_standard_error_is_taken(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    value = torch.ones(terms.n_gains, requires_grad=True)
    train, held = (np.flatnonzero((np.arange(N) % 3 == 0) == part) for part in (False, True))
    settings = FitSettings(epochs=8, penalty="lasso", batch_size=None)

    def chosen(strengths):
        with torch.no_grad():
            value.fill_(1.0)
        return search_and_fit(
            lambda r: head(terms.latent(value, r)),
            [value],
            cross_entropy(judge),
            train,
            HeldOutClips(held),
            Search((settings,), strengths),
        )

    alone = {s: chosen((s,)).held_out_loss for s in (0.9, 0.3, 0.0)}
    found = chosen((0.9, 0.3, 0.0))
    assert found.held_out_loss >= min(alone.values())
    stronger = [loss for s, loss in alone.items() if s > found.settings.strength]
    assert all(loss > found.held_out_loss for loss in stronger)
    # nothing can move at a strength beyond the length of a step: the start is taken
    assert chosen((1.5,)).epochs == 0
    assert torch.equal(value.detach(), torch.ones(terms.n_gains))


def test_a_ridge_pulls_towards_one_and_bounds_hold(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    spread_of = []
    for strength, bounds in ((0.0, UNBOUNDED), (5.0, UNBOUNDED), (0.0, Bounds(0.0, 1.2))):
        value = torch.ones(terms.n_gains, requires_grad=True)
        settings = FitSettings(epochs=40, strength=strength, learning_rate=0.1, bounds=bounds)
        fit(
            lambda r, value=value: head(terms.latent(value, r)),
            [value],
            cross_entropy(judge),
            np.arange(N),
            None,
            settings,
        )
        spread_of.append((float((value - 1).abs().mean().detach()), float(value.detach().min())))
        assert float(value.detach().max()) <= np.float32(bounds.high)
    assert spread_of[1][0] < 0.7 * spread_of[0][0]
    assert spread_of[0][1] < 0 <= spread_of[2][1]


def test_a_loss_that_is_not_a_number_is_reported(parts, head, judge):
    terms = direct_terms(parts, spectra_of(parts, ALL))
    value = torch.full((terms.n_gains,), float("nan"), requires_grad=True)
    with pytest.raises(InputError, match="learning rate"):
        fit(
            lambda r: head(terms.latent(value, r)),
            [value],
            cross_entropy(judge),
            np.arange(N),
            None,
            FitSettings(epochs=1),
        )


def test_components():
    rng = np.random.default_rng(0)
    spectrum = fit_spectrum(rng.normal(size=(50, 5)) * [4, 2, 1, 0.1, 0])
    assert len(Components().of(spectrum).basis) == 4  # the constant direction has no axis
    assert len(Components(k=2).of(spectrum).basis) == 2
    assert len(Components(evr=0.9).of(spectrum).basis) == 2
    assert len(Components(coarse=True).of(spectrum).basis) == 0
    assert Components.parse("k=16,evr=0.99") == Components(16, 0.99)
    assert Components.parse("0.9") == Components(evr=0.9)
    assert Components.parse("12") == Components(12)
    assert str(Components.parse("all")) == "all"
    for text in ("x", "-1", "1.5", "k=0", "evr=2"):
        with pytest.raises(InputError, match="components"):
            Components.parse(text)
    with pytest.raises(InputError, match="constant"):
        kept_parts({"s0": fit_spectrum(np.ones((5, 3)))}, Components())


def test_fewer_clips_than_components_keep_what_is_defined(parts):
    few = spectra_of(parts, ["s0.b0.h0"], np.arange(5))["s0.b0.h0"]
    assert len(Components().of(few).basis) == 4
    with pytest.raises(InputError, match="at least 2"):
        spectra_of(parts, ["s0.b0.h0"], np.arange(1))


def test_control_axes(parts):
    spectra = kept_parts(spectra_of(parts, ALL), Components(k=3))
    for axes in ("rotated", "random"):
        turned = turn(spectra, axes, seed=1)
        for unit, spectrum in turned.items():
            k = len(spectrum.basis)
            assert k == len(spectra[unit].basis)
            np.testing.assert_allclose(spectrum.basis @ spectrum.basis.T, np.eye(k), atol=1e-10)
            inside = spectrum.basis @ spectra[unit].basis.T
            same_space = np.allclose(inside @ inside.T, np.eye(k))
            assert same_space == (axes == "rotated")
            if axes == "rotated":  # the total variance of a subspace does not depend on its axes
                assert spectrum.eigenvalues.sum() == pytest.approx(spectra[unit].eigenvalues.sum())


@pytest.mark.parametrize(
    ("level", "stages", "names"),
    [
        ("head", [1], ["s1.b0.h0", "s1.b0.h1"]),
        ("stage", None, ["s0", "s1"]),
        ("mlp", [0], ["s0.b0.mlp"]),
        ("output", [0], ["output"]),
    ],
)
def test_units_of_some_stages(parts, level, stages, names):
    assert [str(unit) for unit in chosen_units(parts.sites, level, stages)] == names


def test_units_that_are_not_there_are_refused(parts):
    with pytest.raises(InputError, match="no stage 7"):
        chosen_units(parts.sites, "head", [7])
    with pytest.raises(InputError, match="'layer'"):
        chosen_units(parts.sites, "layer")


def test_spectra_of_another_space_are_refused(parts):
    wrong = fit_spectrum(np.random.default_rng(0).normal(size=(20, D + 1)))
    with pytest.raises(InputError, match=f"{D + 1} dimensions"):
        direct_terms(parts, {"s0.b0.h0": wrong})
    with pytest.raises(InputError, match="inside the network"):
        apply_direct(parts, Gains({"s0": np.ones(D + 1)}, {"s0": wrong}))
