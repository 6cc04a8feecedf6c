"""Published protocols: what they fit, how they stop, and both variants side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from residual_audio.adaptation.divisions import Division, folds_of, splits_of
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.protocols import protocol_cells
from residual_audio.adaptation.protocols.arcioni import ARCIONI
from residual_audio.adaptation.protocols.paolini import PAOLINI
from residual_audio.adaptation.protocols.protocol_recipe import Training
from residual_audio.adaptation.protocols.protocol_run import run_protocol
from residual_audio.adaptation.protocols.protocol_tables import protocol_tables
from residual_audio.adaptation.protocols.protocol_training import train
from residual_audio.adaptation.protocols.registry import PROTOCOLS, find_protocol
from residual_audio.adaptation.protocols.stratified import stratified_sample
from residual_audio.adaptation.protocols.token_basis import token_spectra
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.report.figures import draw_all
from residual_audio.report.write import write_tables
from residual_audio.reweight.axes import chosen_units
from residual_audio.surface.protocols import protocol
from residual_audio.surface.runs import Run


@pytest.fixture(scope="module")
def problem(store, passes) -> Problem:
    return problem_of(store, passes=passes)


def short(asked, sets):
    """The same protocol with one epoch and few sets."""
    recipes = {
        name: replace(recipe, training=replace(recipe.training, epochs=1))
        for name, recipe in (("published", asked.published), ("corrected", asked.corrected))
    }
    return replace(asked, stage_sets=sets, **recipes)


class Everything:
    """A tap that keeps what attention gives."""

    def __init__(self, point: str) -> None:
        self.points, self.found = frozenset({point}), {}

    def __call__(self, point, where, value) -> None:
        if getattr(where, "kind", "") == "attention":
            self.found.setdefault(where, []).append(value.numpy())


@pytest.mark.parametrize("level", ["stage", "head"])
def test_a_basis_is_that_of_all_tokens_of_all_blocks(problem, passes, level):
    rows = np.arange(6)
    units = chosen_units(problem.sites, level, (2,))
    found = token_spectra(passes, rows, units)
    tap = Everything("out" if level == "stage" else "raw")
    with torch.no_grad():
        passes.model.encoder.encode(passes.take(torch.from_numpy(rows)), tap=tap)
    mine = {site: parts[0] for site, parts in tap.found.items() if site.stage == 2}
    assert len(mine) == 2  # two blocks share a basis
    if level == "stage":
        width = next(iter(mine)).width
        tokens = np.concatenate([value.reshape(-1, width) for value in mine.values()])
        spectrum = found["s2"]
    else:
        site = list(mine)[1]
        tokens = mine[site].reshape(-1, site.n_heads, site.d_head)[:, 3]
        spectrum = found["s2.b1.h3"]
        assert len(found) == 8
    tokens = tokens.astype(np.float64)
    assert spectrum.n == len(tokens)
    assert np.allclose(spectrum.mean, tokens.mean(0))
    values = np.linalg.eigvalsh(np.cov(tokens.T))[::-1]
    assert np.allclose(spectrum.eigenvalues, values, rtol=1e-6, atol=1e-9)
    assert spectrum.basis.shape == (tokens.shape[1], tokens.shape[1])  # no rank is capped


def bench_of(problem: Problem, recipe) -> protocol_cells.Bench:
    split = next(splits_of(problem, folds_of(problem.clips), Division(allow_missing=True)))
    units = chosen_units(problem.sites, recipe.level, (3,))
    spectra = token_spectra(problem.encoder.passes, split.train, units)
    return protocol_cells.Bench(
        problem, recipe, problem.judge, split, split.train, split.fit, spectra
    )


@pytest.mark.parametrize("asked", [PAOLINI, ARCIONI], ids=["paolini", "arcioni"])
def test_only_the_corrected_variant_starts_from_the_model(problem, asked):
    rows = torch.arange(4)
    for recipe, same in ((asked.corrected, True), (asked.published, False)):
        gains = bench_of(problem, recipe).start((3,))
        with torch.no_grad():
            joint = problem.encoder.embed(gains)(rows).numpy()
        assert np.allclose(joint, problem.joint[:4], atol=1e-4) is same
    values = np.concatenate(list(gains.gains().gains.values()))
    assert ((values == 0).any()) == (asked is ARCIONI)  # beyond 95% of the variance


def test_rules_of_stopping():
    torch.manual_seed(0)
    texts = np.eye(2)
    judge = Judge.for_labels(["a", "b"] * 4, ["a", "b"], texts, 1.0)
    x = torch.tensor([[0.6, 0.4], [0.4, 0.6]] * 3 + [[0.4, 0.6], [0.6, 0.4]])
    rows, held = np.arange(6), np.array([6, 7])  # held-out clips say the opposite

    def fitted(stop, **more):
        gains = torch.nn.Parameter(torch.ones(2))
        how = Training(0.1, 4, stop, batch_size=2, **more)
        found = train(lambda i: (x - 0.5)[i] * gains + 0.5, [gains], judge, rows, held, how, (2,))
        return found, gains.detach()

    last, gains = fitted("last epoch")
    assert last.epochs == 4
    assert set(last.marks) == {2}
    assert (gains > 1).all()
    held_out, gains = fitted("held-out loss")
    assert held_out.epochs == 0  # the start was best, and is kept
    assert torch.equal(gains, torch.ones(2))
    best, _ = fitted("training accuracy", patience=2)
    assert best.epochs == 1  # right from the start: nothing better came
    assert not best.capped


def test_both_variants_side_by_side_and_resumed(problem, tmp_path, monkeypatch):
    asked = short(PAOLINI, ((3,), (2, 3)))
    found = run_protocol(problem, asked, tmp_path / "cells")
    names = [(c.variant, c.name) for c in found.columns]
    sets = ["[3]", "[2,3]"]
    assert names == [
        *(("as published", n) for n in ("baseline", *sets, "best", "linear")),
        *(("corrected", n) for n in ("baseline", *sets, "chosen", "linear")),
    ]
    assert all(np.isfinite(column.hits).all() for column in found.columns)
    by_name = {(c.variant, c.name): c for c in found.columns}
    width = next(s.width for s in problem.sites if s.stage == 3)
    assert by_name["corrected", "[3]"].parameters == width
    folds, chosen = found.folds["corrected"], by_name["corrected", "chosen"]
    for fold, said in enumerate(chosen.chosen):
        mine, test = by_name["corrected", said.split(" ")[0]].hits, folds.test(fold)
        assert np.array_equal(chosen.hits[test], mine[test])
    best = max(by_name["as published", n].hits.mean() for n in sets)
    assert by_name["as published", "best"].hits.mean() == best
    tables = protocol_tables(problem, asked, found)
    write_tables(tmp_path, tables)
    assert [path.stem for path in draw_all(tmp_path, {"protocol_paolini"}, formats=("png",))]
    monkeypatch.setattr(protocol_cells.Bench, "_fitted", _not_again)
    again = run_protocol(problem, asked, tmp_path / "cells")
    assert repr(again.cells) == repr(found.cells)


def _not_again(*_):
    raise AssertionError("a finished cell was fitted again")


def test_a_sweep_reads_epochs_off_one_training(problem, tmp_path):
    asked = replace(short(PAOLINI, ((3,),)), sweep_rates=(0.01, 0.1), sweep_epochs=(1, 2))
    found = run_protocol(problem, asked, tmp_path, sweep=True)
    tried = {(c["rate"], c["epochs"]) for c in found.cells if c["variant"] == "as published"}
    assert tried == {(0.01, 1), (0.01, 2), (0.1, 1), (0.1, 2)}
    plain = run_protocol(problem, short(PAOLINI, ((3,),)), tmp_path)
    same = {(c["fold"], c["accuracy"]) for c in plain.cells if c["variant"] == "as published"}
    swept = [c for c in found.cells if c["variant"] == "as published"]
    mine = {(c["fold"], c["accuracy"]) for c in swept if (c["rate"], c["epochs"]) == (0.01, 1)}
    assert mine == same


def test_the_protocol_of_heads_tears_groups_only_as_published(store, dataset, model):
    run = Run(store.folder.parent, dataset=dataset)
    PROTOCOLS["short"] = short(ARCIONI, ((3,),))
    try:
        found = protocol("short", run, model=model, n=24, n_folds=2)
    finally:
        del PROTOCOLS["short"]
    published, corrected = (
        [row for row in found.table.rows() if row["variant"] == name]
        for name in ("as published", "corrected")
    )
    assert [row["key"] for row in published] == ["baseline", "[3]", "best"]
    assert [row["key"] for row in corrected] == ["baseline", "[3]", "chosen", "linear"]
    assert {row["n"] for row in found.table.rows()} == {24}
    assert "groups are torn" in found.table.notes[0]
    (last,) = [s for s in store.sites if s.stage == 3 and s.kind == "attention"]
    assert published[1]["parameters"] == last.n_heads * last.d_head
    assert any("weight decay" in line for line in found.differences)


def test_too_few_clips_to_choose_by_are_refused(store, dataset, model):
    with pytest.raises(InputError, match="held out"):
        protocol("paolini", Run(store.folder.parent, dataset=dataset), model=model, n=4, n_folds=2)


def test_samples_are_drawn_class_by_class():
    labels = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
    rows = stratified_sample(labels, 20, 42)
    assert [sum(labels[i] == name for i in rows) for name in "abc"] == [12, 6, 2]
    assert len(stratified_sample(labels, 500, 42)) == 100
    assert np.array_equal(rows, stratified_sample(labels, 20, 42))
    assert ARCIONI.n_samples("vocalsound") == 1200
    with pytest.raises(InputError, match="paolini"):
        find_protocol("nobody")
