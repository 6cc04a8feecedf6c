"""The comparison of adaptations: folds, controls, tables, bad input, transfer, retention, sweep."""

from __future__ import annotations

import math

import numpy as np
import pytest
from drowned_problem import CLASSES, D, N, Source, make_problem

from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.methods.all_but_the_top import AllButTheTop
from residual_audio.adaptation.methods.linear_probe import LinearProbe, LogisticRegression
from residual_audio.adaptation.methods.method import FromStore
from residual_audio.adaptation.methods.output_gains import OutputGains
from residual_audio.adaptation.methods.registry import (
    ENTRIES,
    REFERENCE,
    Entry,
    find_entries,
    name_of,
    offered,
)
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.methods.ridge import Ridge
from residual_audio.adaptation.methods.rule import Rule
from residual_audio.adaptation.methods.unadapted import ZeroShot
from residual_audio.adaptation.methods.whitening import Whitening
from residual_audio.adaptation.moved import moved_components, moved_units
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.pruning import first
from residual_audio.adaptation.retention import RetentionGrid, retention_direct
from residual_audio.adaptation.transfer import transfer
from residual_audio.adaptation.verdicts import against, verdicts
from residual_audio.errors import InputError, ModelError
from residual_audio.judge.answers import Judge
from residual_audio.metrics.calibration import expected_calibration_error
from residual_audio.metrics.classification import softmax
from residual_audio.reweight.axes import Components
from residual_audio.reweight.edit_size import edit_size
from residual_audio.reweight.few import UNJUDGED, fit_few
from residual_audio.reweight.solver import Stopping
from residual_audio.types import Clip


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem()


@pytest.fixture(scope="module")
def compared(problem):
    folds = folds_of(problem.clips, 3)
    keys = ("residual", "pca", "coarse", "random", "linear-probe-*")
    found = compare(problem, folds, find_entries(keys, offered(problem)))
    return folds, found, {row["key"]: row for row in verdicts(problem, folds, found)}


def test_gains_find_what_the_loud_head_hides(compared):
    _, _, found = compared
    assert found[REFERENCE]["top1"] < 0.5
    best = found["residual"]
    assert best["top1"] > found[REFERENCE]["top1"] + 0.2
    assert best["gain_low"] > 0
    # so few clips do not show that the probe is better than zero-shot: no share of that gap
    assert math.isnan(best["gap_closed"]) or best["gap_closed"] > 0.5
    assert best["p"] <= best["q"] <= 1
    assert found[REFERENCE]["gain"] == 0
    assert found[REFERENCE]["parameters"] == 0
    # six gains a head and sixteen of the MLP, rotations of their axes, and gains of means
    assert best["parameters"] == 3 * (6 + 15) + (16 + 120) + 4
    assert found["pca"]["parameters"] == 3 * 6 + 16 + 4
    assert best["n"] == N


def test_rows_say_how_well_their_confidence_is_kept(problem, compared):
    _, outcomes, found = compared
    for outcome in outcomes:
        row = found[outcome.entry.key]
        sure = outcome.scores[0]
        if not outcome.entry.key.startswith("linear-probe"):
            sure = softmax(sure, problem.judge.scale)
        want = expected_calibration_error(sure, problem.codes)[0]
        assert row["ece"] == pytest.approx(want)
        assert 0 < row["ece_null"] < row["ece_null_high"] < 1


def test_paired_differences_between_methods(problem, compared):
    _, rows, found = compared
    row = against(problem, rows, "residual", "random")
    want = found["residual"]["top1"] - found["random"]["top1"]
    assert row["gain"] == pytest.approx(want)
    assert row["low"] <= row["gain"] <= row["high"]
    with pytest.raises(InputError, match="no method 'luck'"):
        against(problem, rows, "luck", REFERENCE)


def test_no_group_is_torn_and_nothing_is_fitted_on_the_test_part(problem):
    for split in splits_of(problem, folds_of(problem.clips, 3)):
        parts = [
            {problem.groups[i] for i in part} for part in (split.fit, split.held_out, split.test)
        ]
        assert not parts[0] & parts[1]
        assert not (parts[0] | parts[1]) & parts[2]
        assert len(split.train) + len(split.test) == N


def test_test_labels_do_not_change_what_is_fitted(problem):
    """Scrambling the labels of the test part leaves the scores bit by bit the same."""
    folds = folds_of(problem.clips, 3)
    split = next(splits_of(problem, folds))
    scrambled = problem.judge.positive.clone()
    scrambled[split.test] = scrambled[split.test].roll(1, 1)
    other = make_problem(judge=Judge(problem.judge.texts, scrambled, problem.judge.scale))
    for method in (
        ResiDual("head"),
        LinearProbe("latent"),
        Ridge(),
        Whitening(),
        AllButTheTop(),
        OutputGains(),
    ):
        one = method.fit(problem, split).scores
        assert np.array_equal(one, method.fit(other, split).scores)


def test_every_method_of_the_table_runs_or_says_why(problem):
    folds = folds_of(problem.clips, 3)
    rich = make_problem(ensemble=problem.judge.texts.numpy())
    found = compare(rich, folds, offered(rich))
    assert {outcome.entry.key for outcome in found if outcome.failed} == set()
    for row in verdicts(problem, folds, found):
        assert 0 <= row["top1"] <= 1


def test_a_method_that_fails_becomes_a_row_with_its_reason(problem):
    class Fails(FromStore):
        def fit(self, problem, split):
            raise InputError("no such luck")

    folds = folds_of(problem.clips, 3)
    reference = Entry(REFERENCE, "zero-shot", "reference", ZeroShot())
    entries = [reference, Entry("luck", "luck", "rule", Fails())]
    found = verdicts(problem, folds, compare(problem, folds, entries))
    assert "no such luck" in found[1]["failed"]
    with pytest.raises(InputError, match="zero-shot"):
        verdicts(problem, folds, compare(problem, folds, entries[1:]))


def test_methods_are_found_by_their_keys_alone(problem):
    there = offered(problem)
    assert len({entry.key for entry in ENTRIES}) == len({e.label for e in ENTRIES}) == len(ENTRIES)
    assert [e.key for e in find_entries(["residual"], there)] == [REFERENCE, "residual"]
    rules = find_entries(["rule-*"], there)[1:]
    assert rules
    assert all(isinstance(entry.method, Rule) for entry in rules)
    with pytest.raises(InputError, match="no method 'ResiDual heads'"):
        find_entries(["ResiDual heads"], there)
    for key in ("lora", "heads-3", "prompt-ensemble"):
        with pytest.raises(InputError, match="not here"):
            find_entries([key], there)


def test_a_method_that_runs_the_encoder_says_what_it_lacks(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    with pytest.raises(InputError, match="--network"):
        ResiDual(path="network").fit(problem, split)


def test_a_tie_is_a_failure():
    scores = np.array([[1.0, 1.0], [2.0, 1.0], [0.0, 1.0]])
    assert first(scores, np.zeros(3, int)).tolist() == [0, 1, 0]


def test_official_folds_are_used_where_there_are_several(problem):
    clips = [Clip(c.id, label=c.label, fold=i % 4, group=c.id) for i, c in enumerate(problem.clips)]
    assert folds_of(clips).source == "official"
    assert len(folds_of(clips)) == 4
    alone = [Clip(c.id, label=c.label, fold=4, group=c.group) for c in problem.clips]
    assert folds_of(alone).source.startswith("grouped, 5 folds")


def test_a_class_missing_from_training_is_named(problem):
    clips = tuple(
        Clip(c.id, label=c.label, group="all of c3" if c.label == "c3" else c.group)
        for c in problem.clips
    )
    lone = make_problem(clips=clips)
    folds = folds_of(clips, 3)
    with pytest.raises(InputError, match="no clip of class 'c3'"):
        list(splits_of(lone, folds))
    assert len(list(splits_of(lone, folds, Division(allow_missing=True)))) == 3


def test_few_shot_takes_so_many_clips_of_every_class(problem):
    for shots in (1, 8):
        for split in splits_of(problem, folds_of(problem.clips, 3), Division(shots=shots)):
            assert np.bincount(problem.codes[split.train]).tolist() == [shots] * CLASSES
            assert (len(split.held_out) > 0) == (shots >= 4)
    split = next(splits_of(problem, folds_of(problem.clips, 3), Division(shots=2)))
    found = ResiDual("head").fit(problem, split)
    assert found.notes["strength"] == UNJUDGED  # nothing to choose it by
    assert "held_out_loss" not in found.notes


def test_gains_fitted_here_are_judged_elsewhere(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    gains = ResiDual("head").fit(problem, split).gains
    row = transfer(make_problem(seed=5), gains)
    assert row["top1_after"] - row["top1_before"] == pytest.approx(row["gain"])
    stranger = make_problem(about={"model": {"name": "other", "sha256": "b" * 64}})
    with pytest.raises(ModelError, match="'toy'"):
        transfer(stranger, gains)


def test_retention_keeps_everything_at_full_width(problem):
    rows = retention_direct(problem, folds_of(problem.clips, 3), RetentionGrid((1, 6), ((0,),)))
    full = rows[-1]
    assert full["k"] == 6
    assert full["loss"] == 0
    assert full["variance_kept"] == pytest.approx(1)
    assert rows[0]["variance_kept"] < 0.9


def test_what_moved_is_described(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    gains = ResiDual("head").fit(problem, split).gains
    texts = [f"text {i}" for i in range(D)]
    rows = moved_components(problem, gains, texts, Source().axes, top=5)
    assert len(rows) == 5
    assert rows[0]["energy"] >= rows[-1]["energy"]
    assert rows[0]["positive_texts"].count("|") == 2
    assert rows[0]["negative_clips"].startswith("clip")
    assert {row["unit"] for row in moved_units(gains)} == {f"s0.b0.h{h}" for h in range(3)}


def test_a_store_without_the_direct_path_says_so():
    bare = make_problem(contributions=None)
    split = next(splits_of(bare, folds_of(bare.clips, 3)))
    with pytest.raises(InputError, match="--capture"):
        ResiDual("head").fit(bare, split)
    assert not any(entry.kind == "residual" for entry in offered(bare))


def test_coarse_has_one_gain_a_head_and_one_a_mean(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    found = ResiDual("head", components=Components(coarse=True)).fit(problem, split)
    assert found.n_parameters == 6


def test_by_default_heads_move_and_the_strongest_components_of_mlps(problem, monkeypatch):
    monkeypatch.setattr("residual_audio.adaptation.methods.residual.OF_AN_MLP", 2)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    every = ResiDual(share=1.0).fit(problem, split).gains
    heads = {str(head) for site in problem.sites for head in site.heads}
    mlps = {str(site) for site in problem.sites if site.kind == "mlp"}
    assert set(every.gains) == heads | mlps
    most = max(2, *(site.d_head for site in problem.sites))
    assert {len(every.gains[unit]) for unit in mlps} == {most}
    assert all(0 <= g <= 4 for unit in every.gains for g in every.gains[unit])
    size = edit_size(ResiDual(share=0.2).fit(problem, split).gains)
    assert 0 < size["heads_moved"] <= size["units_moved"] <= max(8, 0.2 * len(heads | mlps))
    assert set(ResiDual("head").fit(problem, split).gains.gains) == heads
    for other in (ResiDual(path="network"), ResiDual(unbounded=True), ResiDual(keep="run")):
        assert other.levels == ("head",)


def test_sets_of_stages_are_compared_at_the_same_number_of_units(problem, monkeypatch):
    asked = []

    def seen(terms, head, lesson, how):
        asked.append(how.share * len(terms.units))
        return fit_few(terms, head, lesson, how)

    monkeypatch.setattr("residual_audio.adaptation.methods.residual.fit_few", seen)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    n_units = sum(max(site.n_heads, 1) for site in problem.sites)  # heads, and an MLP a block
    for stages in (None, (problem.stages[-1],)):
        ResiDual(stages=stages, share=0.25).fit(problem, split)
    assert asked == pytest.approx([0.25 * n_units] * 2)


@pytest.mark.parametrize("width", [5, 80])
def test_logistic_regression_equals_sklearn_from_any_start(width):
    from sklearn.linear_model import LogisticRegression as Reference

    rng = np.random.default_rng(0)
    x, codes = rng.normal(size=(60, width)), np.arange(60) % 3
    ours = LogisticRegression(x, codes, 3)
    exactly = Stopping(1e-6, 1000)
    assert ours.fit(1.0)
    assert ours.fit(0.1, exactly)
    scaled = (x - x.mean(0)) / (x.std(0) + 1e-6)
    other = Reference(C=1 / (0.1 * 60), tol=1e-8, max_iter=1000).fit(scaled, codes)
    np.testing.assert_allclose(ours.weights[:-1].T, other.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.scores(x), other.predict_proba(scaled), atol=1e-4)


def test_a_probe_that_stops_at_its_cap_says_so(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    assert LinearProbe("latent").fit(problem, split).notes["converged"]
    once = LinearProbe("latent", stop=Stopping(evaluations=1))
    assert not once.fit(problem, split).notes["converged"]


def test_names_of_stage_sets():
    assert [name_of(s) for s in ((3,), (2, 3), (0, 1, 2, 3))] == ["{3}", "{2,3}", "{0–3}"]


def test_sweep_is_nested_and_resumes(problem, tmp_path):
    pytest.importorskip("optuna")
    from residual_audio.adaptation.search import sweep

    folds, how = folds_of(problem.clips, 3), Division(only=("1",))
    path = tmp_path / "s" / "sweep.db"
    once = sweep(problem, folds, path, n_trials=2, how=how)
    assert len(once.trials) == 2
    again = sweep(problem, folds, path, n_trials=3, how=how)
    assert [t["trial"] for t in again.trials] == [0, 1, 2]
    assert again.trials[:2] == once.trials
    assert once.folds[0]["n_test"] == again.folds[0]["n_test"] == len(folds.test(0))
