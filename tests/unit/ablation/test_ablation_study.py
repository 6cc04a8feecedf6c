"""Interventions on a real store: tables, figures and gains from a small random model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from residual_audio.ablation.ablation import AblationSettings, ablate, find_units
from residual_audio.ablation.effect_tables import place_of
from residual_audio.ablation.head_metrics import head_metrics
from residual_audio.ablation.interventions import interventions_on
from residual_audio.adaptation.methods import Residual
from residual_audio.adaptation.network_methods import GAINS, NetworkResidual, Rooms, network_methods
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.study import adapt, fit_whole, retain_and_prune
from residual_audio.adaptation.transfer import transfer
from residual_audio.audio.specs import NANO
from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError, ModelError
from residual_audio.extraction.extraction import extract
from residual_audio.judge.of_store import class_judge
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.htsat import HTSAT, HTSATConfig
from residual_audio.models.joint import MLP
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.report.figures import draw_all
from residual_audio.report.write import write_tables
from residual_audio.store import Store
from residual_audio.types import parse_unit

CLASSES = 4


class Words(nn.Module):
    """A text side that gives every text its own fixed vector."""

    kind = "words"
    config: dict = {}  # noqa: RUF012

    def forward(self, texts: list[str]) -> Tensor:
        seeds = [int.from_bytes(hashlib.sha256(t.encode()).digest()[:4], "big") for t in texts]
        return torch.stack(
            [torch.randn(12, generator=torch.Generator().manual_seed(s)) for s in seeds]
        )


@pytest.fixture(scope="module")
def model() -> AudioTextModel:
    torch.manual_seed(0)
    config = HTSATConfig(
        embed_dim=8, depths=(1, 1, 2, 1), n_heads=(1, 2, 4, 8), window=2, spec_size=64, n_mels=64
    )
    encoder = HTSAT(config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
        encoder.mel_norm.running_mean.fill_(-30.0)
        encoder.mel_norm.running_var.fill_(300.0)
    # 64 frames: the log-mel of a short window
    spec = type(NANO)(**{**NANO.to_dict(), "n_samples": 32_000})
    return AudioTextModel(
        name="small",
        family="test",
        front_end=build_front_end(spec),
        encoder=encoder,
        head=MLP(64, 16, 12),
        text=Words(),
        logit_scale=10.0,
        sha256="c" * 64,
    )


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    whole = load_dataset("synthetic", n_clips=240)
    return whole.select(classes=whole.classes[:CLASSES])


@pytest.fixture(scope="module")
def store(model, dataset, tmp_path_factory) -> Store:
    folder = tmp_path_factory.mktemp("run")
    return extract(model, dataset, folder, capture="heads,blocks,direct", shard_size=16).store


@pytest.fixture(scope="module")
def passes(model, dataset, store):
    return load_passes(model, dataset, list(store.clips["id"]), Hearing(), sha256="c" * 64)


def test_another_model_or_data_set_is_refused(model, dataset, store):
    with pytest.raises(ModelError, match="not the model"):
        load_passes(model, dataset, [], Hearing(), sha256="d" * 64)
    with pytest.raises(InputError, match="'nobody'"):
        load_passes(model, dataset, ["nobody"], Hearing())


def test_tables_of_all_methods_and_their_figures(store, passes, tmp_path):
    settings = AblationSettings(
        levels=("head", "attention", "mlp", "stage", "mine=s2.b0.h1+s3.b0.mlp"),
        methods=("direct", "first-order", "exact"),
        pairs=3,
    )
    tables = ablate(interventions_on(store, passes=passes), settings)
    by_name = {table.name: table for table in tables}
    heads = by_name["ablation_head_exact"]
    n_heads = sum(site.n_heads for site in store.sites)
    assert len(heads) == n_heads
    assert (heads["d_margin_low"] <= heads["d_margin"]).all()
    assert "ablation_set_exact" in by_name
    assert len(by_name["ablation_pairs_exact"]) == 3
    curve = by_name["ablation_curve_exact"]
    start = curve["correct"][curve["removed"] == 0]
    assert np.allclose(start, start[0])
    found = by_name["ablation_correlations"]
    assert {"fisher", "pca_99", "text_alignment", "direct_norm"} <= set(found["metric"].tolist())
    write_tables(tmp_path, tables)
    drawn = {path.stem for path in draw_all(tmp_path)}
    assert {
        "fisher_vs_ablation",
        "block_ablation",
        "ablation_predictors",
        "removal_curves",
    } <= drawn


def test_metrics_cover_every_head_and_units_are_found_by_name(store):
    metrics = head_metrics(interventions_on(store))
    assert all(len(values) == sum(s.n_heads for s in store.sites) for values in metrics.values())
    assert list(find_units(store.sites, ["stage", "s0", "s1"])) == ["stage", "set"]


def test_the_place_of_a_unit_is_where_it_begins(store):
    def place(name: str) -> tuple[int, ...]:
        return tuple(place_of(parse_unit(name, store.sites)).values())

    assert place("s2.b1.h3") == (2, 1, 3, 3)
    assert place("s2.b1.mlp") == (2, 1, -1, 3)
    assert place("s2") == (2, -1, -1, -1)
    assert place("output") == (-1, -1, -1, -1)
    assert place("mine=s3.b0.mlp+s2.b0.h1") == (2, 0, 1, 2)


def test_adaptation_of_a_run_and_its_figures(store, tmp_path):
    found = adapt(store, names=["heads {0–3}"], shots=[2])
    names = [table.name for table in found.tables]
    assert names[0] == "adapted"
    assert {"adapted_against", "gains_components", "gains_units", "retention_direct"} <= set(names)
    assert set(found.gains) == {"1", "2", "3", "4", "5"}  # the data set's own folds
    assert found.result.task == "adapted"
    assert found.result["gain: zero-shot"].value == 0
    write_tables(tmp_path, found.tables)
    wanted = {"adaptation", "few_shot", "retention", "gains_by_head"}
    assert {path.stem for path in draw_all(tmp_path, wanted)} == wanted


def test_gains_of_both_paths_are_fitted_on_a_whole_store_and_carried_over(store, passes):
    direct = fit_whole(store, Residual("head", (3,)))
    problem = problem_of(store)
    row = transfer(problem, direct)
    assert row["fitted_on"] == "synthetic"
    settings = type(GAINS)(epochs=2, learning_rate=0.05, batch_size=16)
    inside = fit_whole(store, NetworkResidual(Rooms(passes), "head", (3,), settings=settings))
    assert inside.path == "network"
    with pytest.raises(InputError, match="need the model"):
        transfer(problem, inside)
    assert 0 <= transfer(problem, inside, passes)["top1_after"] <= 1


def test_every_network_method_runs(store, passes):
    from dataclasses import replace

    from residual_audio.adaptation.problem import folds_of, splits_of

    problem = problem_of(store)
    split = next(splits_of(problem, folds_of(problem.clips, 3)))
    before = [p.clone() for p in passes.model.parameters()]
    for method in network_methods(problem, passes):
        quick = replace(method.fit, settings=replace(method.fit.settings, epochs=1))
        found = quick(problem, split, 0)
        assert found.scores.shape == (len(split.test), len(problem.classes))
        assert found.n_parameters > 0
    after = list(passes.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_retention_and_pruning_inside_the_network(store, passes, tmp_path):
    tables = {t.name: t for t in retain_and_prune(store, passes, n_folds=3)}
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

    from residual_audio.adaptation.problem import folds_of, splits_of
    from residual_audio.adaptation.sweep import score, suggest, sweep

    problem = problem_of(store)
    folds = folds_of(problem.clips, 3)
    point = {"stages": "{3}", "components": "all", "learning_rate": 0.05, "l2": 0.01}
    inside, epochs = suggest(
        FixedTrial(point | {"path": "network", "network_epochs": 2}), 4, Rooms(passes)
    )
    assert isinstance(inside, NetworkResidual)
    split = next(splits_of(problem, folds))
    assert 0 <= score(problem, split, inside, epochs, split.held_out, 0) <= 1
    outside, _ = suggest(FixedTrial(point | {"path": "direct", "epochs": 5}), 4, Rooms(passes))
    assert isinstance(outside, Residual)
    trials, _ = sweep(problem, folds, tmp_path / "s.db", n_trials=1, only=["1"], passes=passes)
    assert trials[0]["path"] in ("direct", "network")


def test_one_class_and_no_labels_are_refused(store):
    codes = class_judge(store).positive.float().argmax(1).numpy()
    with pytest.raises(InputError, match="one class"):
        problem_of(store, np.flatnonzero(codes == 0))


def test_a_run_folder_is_left_clean(store):
    assert not list(Path(store.folder).glob(".*tmp"))
