"""Adaptation to captions: what is tested is not looked at, and recalls are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from residual_audio.adaptation.adapted import AdaptSettings
from residual_audio.adaptation.adapted_captions import adapt_to_captions
from residual_audio.adaptation.caption_comparison import compare_on_captions, recalls
from residual_audio.adaptation.caption_problem import caption_problem
from residual_audio.adaptation.caption_ranks import Asked, ranks_of
from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.methods.registry import ENTRIES, REFERENCE, Entry
from residual_audio.adaptation.methods.residual import NETWORK, ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.metrics.ranks import first_rank, rank_both_ways
from residual_audio.reweight.objectives import OBJECTIVES

BEFORE = next(entry for entry in ENTRIES if entry.key == REFERENCE)
LAST = ResiDual(stages=(3,))


@pytest.fixture(scope="module")
def problem(store) -> Problem:
    return caption_problem(store)


def test_the_captions_of_tested_clips_are_not_looked_at(problem):
    folds = folds_of(problem.clips)
    split = next(splits_of(problem, folds, Division(allow_missing=True)))
    texts = problem.judge.texts.clone()
    train = problem.judge.positive[torch.from_numpy(split.train)].any(0)
    texts[~train] = torch.nn.functional.normalize(torch.randn(int((~train).sum()), 12), dim=-1)
    assert 0 < int((~train).sum()) < len(texts)
    changed = replace(problem, judge=replace(problem.judge, texts=texts))
    free = replace(LAST, unbounded=True)
    for objective in ("contrastive", "cross-entropy", "contrastive:1,gap:0.5,entropy:0.1"):
        method = replace(free, objective=objective)
        one, other = (method.fit(p, split).gains for p in (problem, changed))
        for unit, values in one.gains.items():
            assert np.array_equal(values, other.gains[unit])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_of_captions_looks_at_those_of_its_clips_only(name):
    positive = np.eye(4, dtype=bool).repeat(2, 1)
    rng = np.random.default_rng(0)
    texts = rng.normal(size=(8, 5))
    other = texts.copy()
    other[4:] = rng.normal(size=(4, 5))
    joint = torch.from_numpy(rng.normal(size=(2, 5))).float()
    values = [
        float(OBJECTIVES[name](Judge.for_answers(positive, t, 5.0))(joint, torch.tensor([0, 1])))
        for t in (texts, other)
    ]
    assert values[0] == values[1]
    assert np.isfinite(values[0])


def test_ranks_count_shared_captions_for_each_clip_and_own_ones_for_one():
    positive = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], bool)
    clips = [("a", ("same",)), ("b", ("Same", "b")), ("c", ("c",))]
    problem = _by_hand(clips, positive, ("same", "b", "c"))
    asked = Asked.of(problem)
    assert asked.shared
    assert asked.owners.tolist() == [0, 1, 1, 2]
    # clip a is nearest to "c"; "same" is nearest to clip b
    scores = np.array([[0.5, 0.0, 0.9], [0.8, 0.7, 0.0], [0.1, 0.2, 0.3]])
    found = ranks_of(asked, scores, np.arange(3))
    assert found["t2a", "shared"].tolist() == [1, 1, 1, 2]
    assert found["t2a", "own"].tolist() == [2, 1, 1, 2]
    assert found["a2t", "shared"].tolist() == [2, 1, 1]
    # the same words of another clip count as wrong, and as before the right ones
    assert found["a2t", "own"].tolist() == [3, 2, 1]
    similarity = scores[:, [0, 0, 1, 2]]
    both = rank_both_ways(similarity, [(0, 1), (0, 1), (1,), (2,)])
    assert first_rank(both[0]).tolist() == [1, 1, 1, 2]


def _by_hand(clips, positive, texts) -> Problem:
    from residual_audio.models.joint import Identity
    from residual_audio.types import Clip

    judge = Judge.for_answers(positive, np.eye(3), 1.0)
    made = tuple(Clip(id=name, captions=said) for name, said in clips)
    return Problem(
        # "Same" is the text "same": a caption's vector is that of its own spelling in a real store
        tuple(replace(c, captions=tuple(x.lower() for x in c.captions)) for c in made),
        texts,
        judge,
        Identity(3),
        np.eye(3),
        np.eye(3),
    )


def test_recalls_of_all_folds_pool_those_of_each(problem):
    folds = folds_of(problem.clips)
    entries = [BEFORE, Entry("last", "last stage", "residual", LAST)]
    rows = recalls(problem, folds, compare_on_captions(problem, folds, entries))
    for direction in ("t2a", "a2t"):
        mine = [r for r in rows if (r["key"], r["direction"], r["k"]) == ("last", direction, 5)]
        mine = [r for r in mine if r["count"] == "shared"]
        whole = next(r for r in mine if r["fold"] == "all")
        parts = [r for r in mine if r["fold"] != "all"]
        assert whole["n"] == sum(r["n"] for r in parts)
        pooled = np.average([r["recall"] for r in parts], weights=[r["n"] for r in parts])
        assert whole["recall"] == pytest.approx(pooled)
        assert whole["gain"] == pytest.approx(whole["recall"] - whole["before"])
        assert whole["gain_low"] <= whole["gain"] <= whole["gain_high"]
        assert 0 < whole["chance"] < 1
    same = [r for r in rows if r["key"] == REFERENCE]
    assert all(r["gain"] == 0 for r in same)


def test_both_paths_fit_to_captions_and_say_what_moved(store, passes):
    problem = caption_problem(store, passes=passes)
    found = adapt_to_captions(problem, AdaptSettings(methods=("heads-3", "network-heads-3")))
    assert [table.name for table in found.tables] == [
        "retrieval_adapted_heads-3+network-heads-3",
        "retrieval_adapted_heads-3+network-heads-3_methods",
    ]
    assert set(found.tables[1]["key"]) == {"zero-shot", "heads-3", "network-heads-3"}
    assert all(not outcome.failed for outcome in found.outcomes)
    assert found.result["t2a_r1: zero-shot"].n == sum(len(c.captions) for c in problem.clips)
    assert found.result.details["folds"]


def test_a_contrastive_fit_inside_the_network_lowers_its_loss(store, passes):
    problem = caption_problem(store, passes=passes)
    settings = replace(NETWORK, epochs=3, learning_rate=0.05)
    method = ResiDual(stages=(3,), path="network", settings=settings, unbounded=True)
    folds = folds_of(problem.clips)
    split = next(splits_of(problem, folds, Division(allow_missing=True)))
    fitted = method.fit(problem, replace(split, held_out=split.held_out[:0]))
    loss = OBJECTIVES["contrastive"](problem.judge)
    rows = torch.from_numpy(split.fit)
    gains = method.start(problem, split)
    with torch.no_grad():
        before = float(loss(problem.encoder.embed(gains)(rows), rows))
        for unit, value in zip(fitted.gains.gains, gains.values, strict=True):
            value.copy_(torch.from_numpy(fitted.gains.gains[unit]))
        for i, unit in enumerate(fitted.gains.gains):
            gains.means[str(i)].copy_(torch.tensor(fitted.gains.means[unit]))
        after = float(loss(problem.encoder.embed(gains)(rows), rows))
    assert after < before


def test_what_needs_classes_is_refused(problem):
    with pytest.raises(InputError, match="--shots needs labels"):
        adapt_to_captions(problem, AdaptSettings(shots=(2,)))
    with pytest.raises(InputError, match="linear-probe-joint' tells classes apart"):
        adapt_to_captions(problem, AdaptSettings(methods=("linear-probe-joint",)))
