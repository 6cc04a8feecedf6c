"""The comparison of adaptations: folds, controls, tables, bad input, transfer, retention, sweep."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from residual_audio.adaptation import baselines
from residual_audio.adaptation.comparison import (
    REFERENCE,
    against,
    compare,
    direct_methods,
    name_of,
    table,
)
from residual_audio.adaptation.methods import Method, Residual, zero_shot
from residual_audio.adaptation.moved import moved_components, moved_units
from residual_audio.adaptation.problem import Problem, folds_of, splits_of
from residual_audio.adaptation.retention import retention_direct
from residual_audio.adaptation.transfer import transfer
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError, ModelError
from residual_audio.judge.answers import Judge
from residual_audio.models.joint import Linear
from residual_audio.reweight.spectra import Components
from residual_audio.types import Clip, Head, Site

N, D, CLASSES = 96, 16, 4


class Source:
    """Heads that know the class, drowned by one that is loud and knows nothing."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.codes = np.arange(N) % CLASSES
        self.sites = (Site(0, 0, "attention", 3, 6, 18), Site(0, 0, "mlp", 0, 0, 18))
        self.axes = np.linalg.qr(rng.normal(size=(D, D)))[0]
        pools = rng.normal(size=(N, 3, 6)) * 0.3
        pools[:, 0, :4] += np.eye(CLASSES)[self.codes]  # axis c of head 0 is class c
        pools[:, 1] = rng.normal(size=(N, 6)) * 6.0  # loud noise in the same directions
        self.pools = pools.astype(np.float32)
        self.operators = {
            Head(0, 0, 0): self.axes[:6],
            Head(0, 0, 1): self.axes[:6],
            Head(0, 0, 2): self.axes[6:12],
        }
        self.mlp = (rng.normal(size=(N, D)) * 0.1 + 0.5).astype(np.float32)

    def array(self, name: str) -> np.ndarray:
        found = {
            "direct/s0.b0.attention": self.pools,
            "direct/s0.b0.mlp": self.mlp,
            "direct/embedding": np.zeros((N, D), np.float32),
            "direct/weights/s0": np.ones((N, 1), np.float32),
            "embedding/latent": self.latent(),
        }
        return found[name]

    def operator(self, name: str) -> np.ndarray:
        """The stream of the one stage holds the heads side by side."""
        found = {
            "w_out/s0.b0.attention": np.eye(18, dtype=np.float32).reshape(3, 6, 18),
            "b_out/s0.b0.attention": np.zeros(18, np.float32),
            "direct/step/s0": np.concatenate(list(self.operators.values()))[None],
            "direct/final": np.zeros(D, np.float32),
        }
        return found[name].astype(np.float32)

    def latent(self) -> np.ndarray:
        total = self.mlp.astype(np.float64)
        for head, operator in self.operators.items():
            total = total + self.pools[:, head.head] @ operator
        return total.astype(np.float32)


def make_problem(seed: int = 0, **changes) -> Problem:
    source = Source(seed)
    head = Linear(D, D).requires_grad_(False)
    with torch.no_grad():
        head.linear.weight.copy_(torch.eye(D))
        head.linear.bias.zero_()
    latent = source.latent()
    classes = tuple(f"c{i}" for i in range(CLASSES))
    clips = tuple(
        Clip(f"clip{i}", label=classes[source.codes[i]], group=f"g{i // 2}-{source.codes[i]}")
        for i in range(N)
    )
    judge = Judge.for_labels([c.label for c in clips], classes, source.axes[:CLASSES], 10.0)
    given = {
        "clips": clips,
        "classes": classes,
        "judge": judge,
        "head": head,
        "latent": latent,
        "joint": latent.copy(),
        "contributions": Contributions(source),
        "sites": source.sites,
        "about": {"model": {"name": "toy", "sha256": "a" * 64}, "dataset": {"name": "toy"}},
    }
    return Problem(**(given | changes))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem()


@pytest.fixture(scope="module")
def compared(problem):
    folds = folds_of(problem.clips, 3)
    wanted = (REFERENCE, "ResiDual heads {0}", "coarse, one gain a head", "random axes")
    methods = [m for m in direct_methods(problem) if m.name in wanted or "probe" in m.name]
    rows = compare(problem, folds, methods)
    return folds, rows, {row["method"]: row for row in table(problem, folds, rows)}


def test_gains_find_what_the_loud_head_hides(compared):
    _, _, found = compared
    assert found[REFERENCE]["top1"] < 0.5
    best = found["ResiDual heads {0}"]
    assert best["top1"] > found[REFERENCE]["top1"] + 0.2
    assert best["gain_low"] > 0
    assert best["gap_closed"] > 0.5
    assert found[REFERENCE]["gain"] == 0
    assert found[REFERENCE]["parameters"] == 0
    assert best["parameters"] == 3 * 6 + 3
    assert best["n"] == N


def test_paired_differences_between_methods(problem, compared):
    _, rows, found = compared
    row = against(problem, rows, "ResiDual heads {0}", "random axes")
    want = found["ResiDual heads {0}"]["top1"] - found["random axes"]["top1"]
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
        Residual("head"),
        baselines.linear_probe("latent"),
        baselines.ridge_to_texts,
        baselines.whitening,
        baselines.all_but_the_top,
        baselines.output_gains,
    ):
        one = method(problem, split, 0).scores
        assert np.array_equal(one, method(other, split, 0).scores)


def test_every_method_of_the_table_runs_or_says_why(problem):
    folds = folds_of(problem.clips, 3)
    methods = direct_methods(make_problem(ensemble=problem.judge.texts.numpy()))
    rows = compare(make_problem(ensemble=problem.judge.texts.numpy()), folds, methods)
    assert {row.method.name for row in rows if row.failed} == set()
    for row in table(problem, folds, rows):
        assert 0 <= row["top1"] <= 1


def test_a_method_that_fails_becomes_a_row_with_its_reason(problem):
    def fails(problem, split, seed):
        raise InputError("no such luck")

    folds = folds_of(problem.clips, 3)
    methods = [Method(REFERENCE, "reference", zero_shot), Method("luck", "rule", fails)]
    found = table(problem, folds, compare(problem, folds, methods))
    assert "no such luck" in found[1]["failed"]
    with pytest.raises(InputError, match="zero-shot"):
        table(problem, folds, compare(problem, folds, methods[1:]))


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
    assert len(list(splits_of(lone, folds, allow_missing=True))) == 3


def test_few_shot_takes_so_many_clips_of_every_class(problem):
    for shots in (1, 8):
        for split in splits_of(problem, folds_of(problem.clips, 3), shots=shots):
            assert np.bincount(problem.codes[split.train]).tolist() == [shots] * CLASSES
            assert (len(split.held_out) > 0) == (shots >= 4)
    found = Residual("head")(
        problem, next(splits_of(problem, folds_of(problem.clips, 3), shots=2)), 0
    )
    assert found.notes["epochs"] > 0


def test_gains_fitted_here_are_judged_elsewhere(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    gains = Residual("head")(problem, split, 0).gains
    row = transfer(make_problem(seed=5), gains)
    assert row["top1_after"] - row["top1_before"] == pytest.approx(row["gain"])
    stranger = make_problem(about={"model": {"name": "other", "sha256": "b" * 64}})
    with pytest.raises(ModelError, match="'toy'"):
        transfer(stranger, gains)


def test_retention_keeps_everything_at_full_width(problem):
    rows = retention_direct(problem, folds_of(problem.clips, 3), [1, 6], [[0]])
    full = rows[-1]
    assert full["k"] == 6
    assert full["loss"] == 0
    assert full["variance_kept"] == pytest.approx(1)
    assert rows[0]["variance_kept"] < 0.9


def test_what_moved_is_described(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    gains = Residual("head")(problem, split, 0).gains
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
        Residual("head")(bare, split, 0)
    assert not any(m.kind == "residual" for m in direct_methods(bare))


def test_coarse_has_one_gain_a_head_and_one_a_mean(problem):
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    found = Residual("head", components=Components(coarse=True))(problem, split, 0)
    assert found.n_parameters == 6


def test_logistic_regression_equals_sklearn():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x, codes = rng.normal(size=(60, 5)), np.arange(60) % 3
    weights = baselines.logistic(x, codes, 3, pull=0.1)
    other = LogisticRegression(C=1 / (0.1 * 60), tol=1e-8, max_iter=1000).fit(x, codes)
    np.testing.assert_allclose(weights[:-1].T, other.coef_, atol=1e-4)


def test_names_of_stage_sets():
    assert [name_of(s) for s in ((3,), (2, 3), (0, 1, 2, 3))] == ["{3}", "{2,3}", "{0–3}"]


def test_sweep_is_nested_and_resumes(problem, tmp_path):
    pytest.importorskip("optuna")
    from residual_audio.adaptation.sweep import sweep

    folds = folds_of(problem.clips, 3)
    path = tmp_path / "s" / "sweep.db"
    trials, outer = sweep(problem, folds, path, n_trials=2, only=["1"])
    assert len(trials) == 2
    again, same = sweep(problem, folds, path, n_trials=3, only=["1"])
    assert [t["trial"] for t in again] == [0, 1, 2]
    assert again[:2] == trials
    assert outer[0]["n_test"] == same[0]["n_test"] == len(folds.test(0))
