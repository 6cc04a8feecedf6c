"""Interventions on a real store: tables, figures and gains from a small random model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from counted import Counted
from scipy.stats import pearsonr

from residual_audio.ablation.ablation import AblationSettings, ablate, find_units
from residual_audio.ablation.head_metrics import head_metrics
from residual_audio.ablation.interventions import interventions_on
from residual_audio.errors import InputError, ModelError
from residual_audio.passes.kept import load_passes
from residual_audio.passes.loop import Hearing
from residual_audio.report.figures import draw_all
from residual_audio.report.write import write_tables
from residual_audio.types import parse_unit, place_of


def test_curves_of_removal_are_counted(store):
    counted = Counted()
    settings = AblationSettings(levels=("head",), methods=("direct",))
    tables = ablate(interventions_on(store), settings, counted)
    total, done = counted.steps["curves of removal"]
    (curves,) = (table for table in tables if table.name == "ablation_curve_direct")
    assert done == total == 2 * len(set(curves["order"]))  # on both halves of the groups


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
    counted = Counted()
    tables = ablate(interventions_on(store, passes=passes), settings, counted)
    # what runs the encoder says how far it is, to its end
    long = {k: v for k, v in counted.steps.items() if k.endswith((", exact", ", first-order"))}
    assert len(long) == 2 * len(settings.levels)
    assert all(total and done >= total for total, done in long.values()), long
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
    blocks = by_name["ablation_block_correlations"]
    row = blocks.where(
        (blocks["metric"] == "shannon_entropy") & (blocks["importance"] == "exact margin")
    )
    entropy = by_name["ablation_metrics"]["shannon_entropy"].astype(float)
    of = heads["block_index"].astype(int)
    lost = -by_name["ablation_attention_exact"]["d_margin"].astype(float)
    expected = pearsonr([entropy[of == b].mean() for b in sorted(set(of))], lost)
    assert row["pearson"][0] == pytest.approx(expected.statistic)
    assert row["p"][0] == pytest.approx(expected.pvalue)
    assert row["n"][0] == len(lost)
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


def test_a_run_folder_is_left_clean(store):
    assert not list(Path(store.folder).glob(".*tmp"))
