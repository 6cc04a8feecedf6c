"""Adaptation of models without a text side: classes are centroids of training clips alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from drowned_problem import CLASSES, D, Source, make_problem
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import folds_of, splits_of
from residual_audio.adaptation.front import front
from residual_audio.adaptation.front_edits import bounded
from residual_audio.adaptation.methods.registry import REFERENCE, find_entries, offered
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.pruning import first
from residual_audio.adaptation.references import elsewhere
from residual_audio.adaptation.transfer import transfer
from residual_audio.adaptation.verdicts import verdicts
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.reweight.descent import FitSettings


def textless(**changes: object) -> Problem:
    known = make_problem()
    nothing = Judge(torch.zeros(CLASSES, D), known.judge.positive, 1.0)
    return make_problem(judge=nothing, by_centroids=True, **changes)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return textless()


def test_without_a_split_there_are_no_answers(problem: Problem) -> None:
    assert first(problem.scores(problem.joint), problem.codes).sum() == 0


def test_classes_know_the_training_clips_that_nothing_is_chosen_by_and_no_others(
    problem: Problem,
) -> None:
    split = next(iter(splits_of(problem, folds_of(problem.clips, 3))))
    seen = problem.on(split.fit, split.held_out)
    unit = problem.joint / np.linalg.norm(problem.joint, axis=1, keepdims=True)
    for code in range(CLASSES):
        mean = unit[split.fit[problem.codes[split.fit] == code]].mean(0)
        want = mean / np.linalg.norm(mean)
        np.testing.assert_allclose(seen.judge.texts[code], want, atol=1e-6)
    other = problem.joint.copy()
    other[np.concatenate([split.held_out, split.test])] *= -1
    again = replace(problem, joint=other).on(split.fit, split.held_out)
    assert torch.equal(again.judge.texts, seen.judge.texts)
    assert make_problem().on(split.fit).judge.texts.any()  # texts stay what they are


def test_a_class_that_only_held_out_clips_have_is_made_of_those(problem: Problem) -> None:
    of_class = np.flatnonzero(problem.codes == 0)
    rest = np.flatnonzero(problem.codes != 0)
    seen = problem.on(rest, of_class[:5])
    assert bool(seen.judge.texts[0].any())
    with pytest.raises(InputError, match="centroid of class 'c0'"):
        problem.on(rest)


def test_gains_quiet_a_head_that_knows_nothing() -> None:
    source = Source()
    source.pools[:, 1] *= 0.05
    source.pools[:, 2] *= 8  # 2.4 of noise, beside classes that lie 1 apart
    latent = source.latent()
    problem = textless(contributions=Contributions(source), latent=latent, joint=latent.copy())
    folds = folds_of(problem.clips, 3)
    entries = find_entries(("residual",), offered(problem))
    assert entries[0].label == "nearest class centroid"
    found = {row["key"]: row for row in verdicts(problem, folds, compare(problem, folds, entries))}
    assert found["residual"]["gain_low"] > 0
    assert found["residual"]["top1"] > found[REFERENCE]["top1"]


def test_sources_do_not_leak_into_their_own_class() -> None:
    """Every clip is its group's direction: what is learned of one says nothing of others."""
    problem = textless()
    groups = [f"{code}-{i // 24}" for i, code in enumerate(problem.codes)]
    clips = [replace(clip, group=group) for clip, group in zip(problem.clips, groups, strict=True)]
    own = np.random.default_rng(0).standard_normal((len(set(groups)), D)).astype(np.float32)
    joint = own[[sorted(set(groups)).index(group) for group in groups]]
    blind = replace(problem, joint=joint, clips=tuple(clips))
    hits = first(blind.scores_on(folds_of(blind.clips, 4), joint), blind.codes)
    assert hits.mean() < 0.5
    assert first(blind.on(np.arange(len(blind))).scores(joint), blind.codes).mean() > 0.9


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ra.Run:
    sounds = ra.load_dataset("synthetic", n_clips=492, duration_s=1.0)
    some = sounds.select(classes=["steady tone", "siren", "rain", "church bell"])
    kinds = ("heads", "blocks", "direct")
    return ra.extract(tiny_model(text=False), some, tmp_path_factory.mktemp("run"), capture=kinds)


def test_every_study_of_gains_goes_without_texts(run: ra.Run) -> None:
    fitted = ra.adapt(run, ra.ResiDual(), n_folds=3)
    assert fitted.gains is not None
    assert fitted.before.value > fitted.before.chance
    problem = problem_of(run.store)
    assert problem.by_centroids
    assert transfer(problem, fitted.gains)["n"] == len(problem)
    folds = folds_of(problem.clips, 2)
    points = front(problem, folds, elsewhere([str(run.folder)], problem), among=[bounded()])
    assert all(np.isfinite([point["top1"], point["lost"]]).all() for point in points)
    few = ra.ResiDual(path="network", settings=FitSettings(epochs=1))
    inside = ra.adapt(run, few, model=tiny_model(text=False), n_folds=2)
    assert inside.score.n == len(problem)
