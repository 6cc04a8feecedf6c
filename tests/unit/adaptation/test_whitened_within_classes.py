"""Components that are uncorrelated within classes: what they are, and where they cannot be had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drowned_problem import make_problem

from residual_audio.adaptation.divisions import Division, Split, folds_of, splits_of
from residual_audio.adaptation.methods import residual
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.errors import InputError
from residual_audio.reweight.axes import Components
from residual_audio.reweight.uncorrelated import WITHIN, Uncorrelated, within_classes

METHOD = ResiDual(whiten="within")


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem()


@pytest.fixture(scope="module")
def split(problem: Problem) -> Split:
    return next(splits_of(problem, folds_of(problem.clips, 3)))


def test_classes_of_training_clips_shape_the_coordinates(problem: Problem, split: Split) -> None:
    terms = METHOD.terms(problem, split)
    codes = problem.codes[split.train]
    read = terms.at(split.train).amplitudes.double().numpy()
    stop = 0
    for unit, size in zip(terms.units, terms.sizes, strict=True):
        own = read[:, stop : stop + size]
        stop += size
        spectrum = terms.spectra[unit]
        assert isinstance(spectrum, Uncorrelated)
        within = within_classes(own, codes)
        seen = WITHIN * within + (1 - WITHIN) * np.asarray(spectrum.moment)
        apart = seen - np.diag(np.diagonal(seen))
        assert np.abs(apart).max() < 1e-3 * np.diagonal(seen).max()
    # test clips decide nothing
    positive = problem.judge.positive.clone()
    positive[split.test] = positive[split.test].roll(1, 1)
    other = replace(problem, judge=replace(problem.judge, positive=positive))
    again = METHOD.terms(other, split)
    assert (again.amplitudes == terms.amplitudes).all()


def test_gains_stay_within_their_bounds_and_mlps_have_what_was_asked_for(
    problem: Problem, split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(residual, "OF_AN_MLP", 1)
    more = max(site.d_head for site in problem.sites) + 2  # than where nothing is asked for
    found = replace(METHOD, components=Components(k=more), share=1.0).fit(problem, split).gains
    assert found is not None
    assert {len(found.gains[str(s)]) for s in problem.sites if s.kind == "mlp"} == {more}
    every = np.concatenate(list(found.gains.values()))
    assert (every >= 0).all()
    assert (every <= 4).all()
    assert (every != 1).any()
    assert found.fitted_on["whiten"] == "within"


def test_one_clip_a_class_says_nothing_and_is_told(problem: Problem) -> None:
    alone = next(splits_of(problem, folds_of(problem.clips, 3), Division(shots=1)))
    with pytest.raises(InputError, match="no class has two clips"):
        METHOD.fit(problem, alone)


@pytest.mark.parametrize(
    "contradiction",
    [{"keep": "run"}, {"axes": "pca"}, {"path": "network"}, {"mean_gains": False}],
    ids=str,
)
def test_what_it_cannot_go_with_is_refused(contradiction: dict[str, object]) -> None:
    with pytest.raises(InputError, match="whitening within classes"):
        replace(METHOD, **contradiction)


def test_captions_are_a_class_each(problem: Problem, split: Split) -> None:
    captioned = replace(problem, judge=replace(problem.judge, own=True))
    assert not METHOD.offered(captioned)
    assert ResiDual().offered(captioned)
    with pytest.raises(InputError, match="captions are a class each"):
        METHOD.terms(captioned, split)
