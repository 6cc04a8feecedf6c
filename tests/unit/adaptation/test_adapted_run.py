"""Adaptation of a real store: tables, figures and gains from a small random model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from counted import Counted

from residual_audio.adaptation.adapted import WHOLE, AdaptSettings, adapt, fit_whole
from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.methods.registry import (
    REFERENCE,
    kept_entries,
    main_entries,
    offered,
)
from residual_audio.adaptation.methods.residual import NETWORK, ResiDual
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.smaller import retain_and_prune
from residual_audio.adaptation.transfer import transfer
from residual_audio.errors import InputError
from residual_audio.judge.of_store import class_judge
from residual_audio.report.figures import draw_all
from residual_audio.report.write import write_tables
from residual_audio.results import result_name


def test_adaptation_of_a_run_and_its_figures(store, tmp_path):
    found = adapt(store, AdaptSettings(methods=("residual",), shots=(2,), name=WHOLE))
    names = [table.name for table in found.tables]
    assert names[0] == "adapted"
    assert found.main["key"] == "residual"
    assert {"adapted_against", "gains_components", "gains_units", "retention_direct"} <= set(names)
    assert set(found.gains) == {"1", "2", "3", "4", "5"}  # the data set's own folds
    assert found.result.task == "adapted"
    assert found.result["gain: zero-shot"].value == 0
    write_tables(tmp_path, found.tables)
    wanted = {"adaptation", "few_shot", "retention", "gains_by_head"}
    assert {path.stem for path in draw_all(tmp_path, wanted)} == wanted


def test_the_main_table_has_the_main_methods_what_is_kept_and_what_runs_the_encoder(store, passes):
    problem = problem_of(store, passes=passes)
    among = [*offered(problem), *kept_entries(("synthetic",), None)]
    keys = {entry.key for entry in main_entries(problem, among)}
    assert {REFERENCE, "residual", "heads-all", "rotated", "rule-window", "ridge"} <= keys
    assert {"kept", "kept-bounded", "network-heads-23", "lora"} <= keys
    assert not {"unbounded", "heads-23", "mlps"} & keys


def test_every_method_and_named_ones_contradict_each_other():
    with pytest.raises(InputError, match="one or the other"):
        AdaptSettings(methods=("ridge",), every_method=True)


def test_a_comparison_says_what_the_model_heard_in_training(store, monkeypatch):
    note = "was trained on 3 of these clips"
    monkeypatch.setattr(type(store), "heard_before", {"n": 3, "of": 40, "note": note})
    found = adapt(store, AdaptSettings(methods=("ridge",), retention=False))
    assert found.result.details["heard_before"]["note"] == note
    assert note in found.tables[0].notes


def test_components_a_head_are_counted(store):
    counted = Counted()
    adapt(store, AdaptSettings(methods=("ridge",)), progress=counted)
    total, done = counted.steps["components a head"]
    assert done == total
    assert total % 25 == 0  # five folds, four stages and all of them, every number of components


def test_gains_of_both_paths_are_fitted_on_a_whole_store_and_carried_over(store, passes):
    direct = fit_whole(store, ResiDual("head", (3,)))
    problem = problem_of(store)
    row = transfer(problem, direct)
    assert row["fitted_on"] == "synthetic"
    settings = type(NETWORK)(epochs=2, learning_rate=0.05, batch_size=16)
    inside = fit_whole(
        store, ResiDual("head", (3,), path="network", settings=settings), passes=passes
    )
    assert inside.path == "network"
    assert {"epochs", "held_out_loss"} <= set(inside.fitted_on)  # what the held-out clips said
    with pytest.raises(InputError, match="needs the model"):
        transfer(problem, inside)
    assert 0 <= transfer(problem_of(store, passes=passes), inside)["top1_after"] <= 1


def test_every_network_method_runs(store, passes):
    problem = problem_of(store, passes=passes)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    before = [p.clone() for p in passes.model.parameters()]
    inside = [entry for entry in offered(problem) if entry.method.runs_encoder]
    assert [entry.label for entry in inside][:3] == [
        "network heads {3}",
        "network heads {2}",
        "network heads {2,3}",
    ]
    for entry in inside:
        settings = replace(entry.method.settings or NETWORK, epochs=1)
        found = replace(entry.method, settings=settings).fit(problem, split)
        assert found.scores.shape == (len(split.test), len(problem.classes))
        assert found.n_parameters > 0
    after = list(passes.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_retention_and_pruning_inside_the_network(store, passes, tmp_path):
    counted = Counted()
    found = retain_and_prune(store, passes, n_folds=3, progress=counted)
    # every long step says how far it is, to its end
    assert counted.steps
    assert all(total and done == total for total, done in counted.steps.values()), counted.steps
    tables = {t.name: t for t in found}
    kept = tables["retention_network"]
    whole = kept.where(kept["k"] == kept["k"].max())
    assert np.allclose(whole["loss"].astype(float), 0)  # all components: nothing changes
    pruned = tables["pruning"]
    assert set(pruned["order"].tolist()) == {"direct", "spread", "fisher", "random"}
    none = pruned.where(pruned["removed"] == 0)
    assert np.allclose(none["loss"].astype(float), 0)
    # one head of every block stays
    n_heads = sum(site.n_heads for site in store.sites)
    assert pruned["removed"].max() <= n_heads - sum(site.n_heads > 0 for site in store.sites)
    write_tables(tmp_path, list(tables.values()))
    assert {p.stem for p in draw_all(tmp_path, {"retention", "pruning"})} == {
        "retention",
        "pruning",
    }


def test_a_sweep_searches_both_paths(store, passes, tmp_path):
    pytest.importorskip("optuna")
    from optuna.trial import FixedTrial

    from residual_audio.adaptation.search import score, suggest, sweep

    problem = problem_of(store, passes=passes)
    folds = folds_of(problem.clips, 3)
    point = {"stages": "{3}", "components": "all", "max_gain": 3.0}
    network = {"path": "network", "learning_rate": 0.05, "ridge": 0.01, "network_epochs": 2}
    inside, epochs = suggest(FixedTrial(point | network), problem)
    assert inside.path == "network"
    split = next(splits_of(problem, folds))
    assert 0 <= score(problem, split, inside, epochs, split.held_out) <= 1
    direct = {"path": "direct", "penalty": "lasso", "strength": 0.2}
    outside, strength = suggest(FixedTrial(point | direct), problem)
    assert (outside.path, outside.bounds) == ("direct", (0.0, 3.0))
    assert 0 <= score(problem, split, outside, strength, split.held_out) <= 1
    found = sweep(problem, folds, tmp_path / "s.db", n_trials=1, how=Division(only=("1",)))
    assert found.trials[0]["path"] in ("direct", "network")


def test_one_class_and_no_labels_are_refused(store):
    codes = class_judge(store).positive.float().argmax(1).numpy()
    with pytest.raises(InputError, match="one class"):
        problem_of(store, np.flatnonzero(codes == 0))


def test_objectives_hold_on_both_paths(store, passes):
    problem = problem_of(store, passes=passes)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    with pytest.raises(InputError, match="'nonsense' is no objective"):
        ResiDual(path="network", objective="nonsense")
    short = {"settings": replace(NETWORK, epochs=2), "rates": (0.05,)}
    for path, inside in (("direct", {}), ("network", short)):
        plain, mixed = (
            ResiDual(stages=(3,), path=path, objective=words, **inside)
            .fit(problem, replace(split, held_out=split.held_out[:0]))
            .scores
            for words in ("cross-entropy", "cross-entropy:1,spread:5")
        )
        assert not np.array_equal(plain, mixed)


def test_a_partial_comparison_leaves_the_whole_one_alone(store, tmp_path):
    whole = adapt(store, AdaptSettings(methods=("residual", "coarse"), name=WHOLE))
    write_tables(tmp_path, whole.tables)
    before = {path: path.read_bytes() for path in (tmp_path / "tables").glob("*.csv")}
    part = adapt(store, AdaptSettings(methods=("residual",), folds=("1", "2")))
    assert part.name == "adapted_residual_fold-1_fold-2"
    write_tables(tmp_path, part.tables)
    assert before == {path: path.read_bytes() for path in before}
    assert not set(part.gain_files) & set(whole.gain_files)
    assert set(whole.gain_files) == {f"direct-fold-{fold}" for fold in "12345"}
    assert result_name(part.result) != result_name(whole.result)


def test_the_main_table_is_followed_by_harder_splits(store, tmp_path):
    ids = [str(name) for name in store.clips["id"]]
    table = tmp_path / "notes.csv"
    rows = [f"{name},{i % 7},{'abcd'[i % 4]}" for i, name in enumerate(ids)]
    table.write_text("\n".join(["Path,height,way", *rows]))
    harder = (f"{table}#height:blocks", f"{table}#way")
    found = adapt(store, AdaptSettings(methods=("residual", "ridge"), harder=harder, name=WHOLE))
    assert "adapted_splits" in {table.name for table in found.tables}
    by_split = {}
    for row in found.splits:
        by_split.setdefault(row["split"], {})[row["key"]] = row
    official, blocks, whole = by_split
    assert "blocks along height" in blocks
    assert "whole values of way out" in whole
    assert by_split[official]["residual"]["top1"] == found.main["top1"]
    for split in by_split.values():
        assert {REFERENCE, "residual", "ridge"} <= set(split)
        assert split["ridge"]["n"] == len(ids)
