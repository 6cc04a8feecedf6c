"""The whole analysis on a store in memory: every table, checked against direct computation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from analysis_store import CLASSES, SITES, FakeStore
from scipy.linalg import subspace_angles

from residual_audio.analysis.analysis import Options, analyse
from residual_audio.analysis.attention_tables import attention_tables
from residual_audio.analysis.description import describe_heads, joint_derivative
from residual_audio.analysis.head_measures import measure_heads
from residual_audio.analysis.intervals import resampled_spectra, stage_intervals
from residual_audio.analysis.parts import PARTS
from residual_audio.analysis.result import Analysis
from residual_audio.analysis.separability_tables import read_labels
from residual_audio.analysis.similarity_tables import projected_bases
from residual_audio.errors import InputError, StoreError
from residual_audio.metrics.bootstrap import resample_counts
from residual_audio.metrics.dimension import local_dimension, two_nn
from residual_audio.metrics.neighbours import neighbour_distances
from residual_audio.metrics.separability import fisher
from residual_audio.metrics.spectra import eigenspectrum, participation_ratio
from residual_audio.progress import Progress
from residual_audio.report.table_files import read_parquet
from residual_audio.report.write import write_analysis
from residual_audio.types import Site

N_HEADS = sum(site.n_heads for site in SITES)


@pytest.fixture(scope="module")
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture(scope="module")
def analysis(store: FakeStore) -> Analysis:
    return analyse(store)


def test_every_part_gives_its_table(analysis: Analysis) -> None:
    assert analysis.skipped == {}
    assert set(analysis.tables) == {
        "heads", "blocks", "stages", "spectra", "local_dimension", "units", "similarity",
        "fingerprints", "fisher",
        "class_activation", "attention", "attention_stages", "attention_sample", "pooling",
        "attention_averaged", "top_clips", "descriptions", "dimension_vs_n",
    }  # fmt: skip
    assert len(analysis.tables["heads"]) == N_HEADS
    assert len(analysis.tables["blocks"]) == 4
    assert len(analysis.tables["stages"]) == 2


def test_raw_and_projected_dimensions_are_those_of_the_vectors(
    analysis: Analysis, store: FakeStore
) -> None:
    heads = {row["head_id"]: row for row in analysis.tables["heads"].rows()}
    for site in SITES:
        raw = store.heads(site)
        for h in range(site.n_heads):
            row = heads[f"s{site.stage}.b{site.block}.h{h}"]
            explicit = raw[:, h].astype(np.float64) @ store.w_out(site)[h]
            assert row["pr"] == pytest.approx(
                participation_ratio(eigenspectrum(raw[:, h]))[0], rel=1e-9
            )
            assert row["projected_pr"] == pytest.approx(
                participation_ratio(eigenspectrum(explicit))[0], rel=1e-7
            )
            assert row["projected_twonn"] == pytest.approx(
                two_nn(neighbour_distances(explicit)).value[0], rel=1e-7
            )
            moments = store.moments(site)
            values = np.linalg.eigvalsh(moments.covariance[h])
            assert row["token_pr"] == pytest.approx(values.sum() ** 2 / (values**2).sum())
            assert row["ln_ratio"] == pytest.approx(row["pca_99"] / row["twonn"])


def test_local_dimension_has_a_row_a_clip(analysis: Analysis, store: FakeStore) -> None:
    table = analysis.tables["local_dimension"]
    assert len(table) == 90
    near = neighbour_distances(
        np.concatenate([np.moveaxis(store.heads(site), 1, 0) for site in SITES[:2]])
    )
    np.testing.assert_allclose(table["s0"], local_dimension(near).mean(axis=0), rtol=1e-9)


def test_stages_differ_as_they_were_made(analysis: Analysis) -> None:
    test = analysis.statistics["metrics"]["pr"]["anova"]
    assert test["p"] < 0.01
    low, high = analysis.statistics["stage_intervals"]["pr"]["s1"]
    mean = analysis.statistics["metrics"]["pr"]["stages"]["s1"]["mean"]
    assert low < mean < high
    assert "pr_low" in analysis.tables["stages"]


def test_resampled_spectra_are_those_of_the_drawn_clips(store: FakeStore) -> None:
    x = np.moveaxis(store.heads(SITES[2]), 1, 0)
    counts = resample_counts(90, 4, np.random.default_rng(0))
    found = resampled_spectra(x, counts)
    for r, row in enumerate(counts):
        drawn = np.repeat(np.arange(90), row)
        np.testing.assert_allclose(found[:, r], eigenspectrum(x[:, drawn]), rtol=1e-6)


def test_intervals_shrink_with_more_clips() -> None:
    widths = []
    store = FakeStore(n_clips=600)
    for n in (600, 60):
        for site in SITES:
            store.arrays[f"heads/{site}"] = store.arrays[f"heads/{site}"][-n:]
        store.clips = store.clips.where(np.arange(len(store.clips))[-n:])
        ratio = measure_heads(store, projected=False, tokens=False).log_ratio
        found = stage_intervals(store, ratio, n_resamples=60)
        widths.append([found[m]["s1"][1] - found[m]["s1"][0] for m in ("pr", "twonn")])
    assert (np.array(widths[0]) < np.array(widths[1]) / 2).all()


def test_separability_matches_the_metric_and_keeps_groups_whole(
    analysis: Analysis, store: FakeStore
) -> None:
    labels = read_labels(store)
    assert labels.names == CLASSES
    assert all(len({labels.folds[i] for i in range(90) if i // 3 == g}) == 1 for g in range(30))
    table = analysis.tables["fisher"]
    x = np.moveaxis(store.heads(SITES[0]), 1, 0)
    np.testing.assert_allclose(table["fisher_trace"][:2], fisher(x, labels.codes))
    assert (table["probe_low"] <= table["probe_accuracy"]).all()
    assert table["probe_accuracy"].max() > table["probe_chance"][0]
    activation = analysis.tables["class_activation"]
    assert len(activation) == N_HEADS * 3
    after = store.heads(SITES[0])[:, 0].astype(np.float64) @ store.w_out(SITES[0])[0]
    norms = np.linalg.norm(after, axis=1)
    assert activation["norm"][0] == pytest.approx(norms[labels.codes == 0].mean(), rel=1e-6)


def test_heads_are_found_by_what_they_know_of_classes(analysis: Analysis) -> None:
    fisher_table = analysis.tables["fisher"]
    best = analysis.heads.top("fisher_trace", 3)
    order = np.argsort(-fisher_table["fisher_trace"])[:3]
    assert best["head_id"].tolist() == fisher_table["head_id"][order].tolist()
    for name in set(fisher_table.columns) - {"head_id", "preferred_class"}:
        np.testing.assert_array_equal(analysis.heads[name], fisher_table[name])
    stage_0 = analysis.heads.where(analysis.heads["stage"] == 0)
    means = analysis.stages["probe_accuracy_mean"]
    assert means[0] == pytest.approx(stage_0["probe_accuracy"].mean())
    assert analysis.statistics["metrics"]["silhouette"]["anova"]["n"] == N_HEADS
    assert "fisher_trace" not in analyse(FakeStore(), Options(parts=frozenset())).heads


def test_progress_counts_to_the_end_of_every_step(store: FakeStore) -> None:
    class Counted(Progress):
        def __init__(self) -> None:
            self.steps: dict[str, list[int]] = {}

        def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
            assert total is not None
            self.steps[name] = self.now = [0, total]

        def advance(self, n: int = 1, said: str = "") -> None:
            self.now[0] += n

    progress = Counted()
    analyse(store, Options(), progress)
    made = {f"analyse: {part.name}" for part in PARTS.values() if part.make and part.by_default}
    assert set(progress.steps) == made | {"analyse: dimension"}
    for name, (done, total) in progress.steps.items():
        assert done == total, name


def test_official_folds_are_used_where_all_clips_have_one() -> None:
    store = FakeStore()
    store.clips["fold"][:] = [i % 4 + 1 for i in range(90)]
    labels = read_labels(store)
    assert labels.how == "official folds"
    assert sorted(set(labels.folds.tolist())) == [1, 2, 3, 4]


def test_directions_in_the_stream_are_those_of_the_projected_heads(store: FakeStore) -> None:
    site = SITES[3]
    x, w = np.moveaxis(store.heads(site), 1, 0), store.w_out(site)
    bases = projected_bases(x, w, 3)
    for h in range(site.n_heads):
        _, _, axes = np.linalg.svd(
            (x[h] - x[h].mean(0)).astype(np.float64) @ w[h], full_matrices=False
        )
        assert subspace_angles(bases[h].T, axes[:3].T).max() < 1e-6


def test_similarity_is_symmetric_and_subspaces_stay_in_their_stage(analysis: Analysis) -> None:
    table = analysis.tables["similarity"]
    assert len(table) == N_HEADS * (N_HEADS - 1) // 2
    cross = np.array(
        [a[:2] != b[:2] for a, b in zip(table["head_a"], table["head_b"], strict=True)]
    )
    assert np.isnan(table["subspace"][cross]).all()
    assert np.isfinite(table["subspace"][~cross]).all()
    found = analysis.statistics["similarity"]["spectral_cosine"]
    assert found["within"] > found["cross"]
    order = analysis.tables["fingerprints"]["ward_order"]
    assert sorted(order) == list(range(N_HEADS))


def test_pooling_shares_sum_to_one(analysis: Analysis) -> None:
    table = analysis.tables["pooling"]
    total = sum(table[f"share_{part}"] for part in ("clip", "time", "frequency", "rest"))
    np.testing.assert_allclose(total, 1, atol=1e-6)
    assert (table["hosvd_clip_90"] <= 5).all()


def test_top_clips_are_the_extremes(analysis: Analysis, store: FakeStore) -> None:
    table = analysis.tables["top_clips"]
    first = table.where((table["head_id"] == "s0.b0.h0") & (table["component"] == 1))
    x = store.heads(SITES[0])[:, 0].astype(np.float64)
    _, _, axes = np.linalg.svd(x - x.mean(0))
    scores = (x - x.mean(0)) @ axes[0]
    ends = {f"clip-{scores.argmax()}.wav", f"clip-{scores.argmin()}.wav"}
    assert {r["clip"] for r in first.rows() if r["rank"] == 1} == ends


def test_words_name_the_direction_a_head_was_given(store: FakeStore) -> None:
    made = FakeStore()
    made.joint = {
        "kind": "linear",
        "norm_eps": {},
        "config": {},
    }  # so that the joint space is readable
    made.operators |= {"joint/linear.weight": np.eye(16, 24), "joint/linear.bias": np.zeros(16)}
    dictionary = made.texts()[1]
    centred = dictionary - dictionary.mean(0)
    signal = np.random.default_rng(1).normal(size=90)
    target = np.pad(centred[7] / np.linalg.norm(centred[7]), (0, 8))
    for site in SITES:  # every head writes the signal along the target
        made.arrays[f"direct/{site}"] = np.tile(signal[:, None, None], (site.n_heads, site.d_head))
        made.operators[f"w_out/{site}"] = np.zeros((site.n_heads, site.d_head, site.width))
        made.operators[f"w_out/{site}"][:, 0, 0] = 1
    made.operators["direct/step/s0"] = np.eye(12, 24)[None]
    made.operators["direct/step/s1"] = np.outer(np.eye(24)[0], target)[None]
    derivative, linearity = joint_derivative(made)
    np.testing.assert_allclose(derivative, np.eye(24)[:, :16], atol=1e-6)
    assert linearity == pytest.approx(1)
    table = describe_heads(made, n_components=1)
    row = next(r for r in table.rows() if "sound 7" in r["texts"].split("; ")[0])
    assert row["fit"] == pytest.approx(1, abs=1e-3)
    assert row["fit_z"] > 2


def test_attention_names_its_sample(store: FakeStore) -> None:
    tables = attention_tables(store)
    assert (tables["attention"]["n_maps"] == 40).all()
    assert "40" in tables["attention"].notes[0]
    curve = tables["attention_sample"]
    small = curve["pr"][curve["n_maps"] == 8].mean()
    assert small < curve["pr"][curve["n_maps"] == 32].mean()
    assert np.isfinite(tables["attention_stages"]["averaged_pr"]).all()


def test_curves_end_at_all_clips(analysis: Analysis) -> None:
    table = analysis.tables["dimension_vs_n"]
    assert sorted(set(table["n_clips"].tolist())) == [50, 90]
    whole = table.where((table["n_clips"] == 90) & (table["stage"] == 1))
    expected = analysis.statistics["metrics"]["twonn"]["stages"]["s1"]["mean"]
    assert whole["twonn"][0] == pytest.approx(expected, rel=1e-9)


def test_what_is_missing_is_said(store: FakeStore) -> None:
    bare = FakeStore(has_text=False)
    bare.arrays = {k: v for k, v in bare.arrays.items() if k.startswith(("heads/", "embedding/"))}
    bare.clips["label"][:] = [None] * 90
    found = analyse(
        bare, Options(parts=frozenset(PARTS) - {"curves", "kernel", "intervals", "curved"})
    )
    assert set(found.skipped) == {"tokens", "separability", "attention", "pooling", "words"}
    assert "label" in found.skipped["separability"]
    assert "--capture" in found.skipped["attention"]
    assert "text" in found.skipped["words"]
    bare.arrays = {}
    with pytest.raises(InputError, match="no heads"):
        analyse(bare)


def test_a_damaged_store_is_an_error_and_no_omission() -> None:
    damaged = FakeStore()
    whole = damaged.heads
    calls = []

    def heads(site: Site) -> np.ndarray:
        calls.append(site)
        if len(calls) > len(SITES):
            raise StoreError("'shard-00000.safetensors' is missing from the store")
        return whole(site)

    damaged.heads = heads
    with pytest.raises(StoreError, match="shard-00000"):
        analyse(damaged, Options(parts=frozenset({"similarity"})))


def test_words_need_the_direct_path_and_a_readable_joint_head() -> None:
    without = FakeStore()
    without.arrays = {k: v for k, v in without.arrays.items() if not k.startswith("direct/")}
    with pytest.raises(InputError, match="--capture …,direct"):
        describe_heads(without)
    odd = FakeStore()
    odd.joint = None
    with pytest.raises(InputError, match="joint head"):
        describe_heads(odd)


def test_nan_in_a_store_is_named() -> None:
    spoiled = FakeStore()
    spoiled.arrays[f"heads/{SITES[1]}"][5, 1, 0] = np.nan
    with pytest.raises(InputError, match=r"head s0\.b1\.h1, clip 'clip-5\.wav'"):
        analyse(spoiled, Options(parts=frozenset()))


def test_a_dead_head_is_nan_with_a_reason() -> None:
    dead = FakeStore()
    dead.arrays[f"heads/{SITES[0]}"][:, 0] = 1.25
    found = analyse(dead, Options(parts=frozenset({"similarity", "intervals", "separability"})))
    row = next(found.tables["heads"].rows())
    assert np.isnan(row["pca_99"])
    assert "constant" in row["reason"]
    assert found.statistics["metrics"]["pr"]["stages"]["s0"]["n"] == 3
    assert np.isnan(found.tables["fisher"]["fisher_trace"][0])


def test_options_refuse_what_they_do_not_know() -> None:
    with pytest.raises(InputError, match="'dimensoin'"):
        Options.of(["dimensoin"])
    with pytest.raises(InputError, match="'layers'"):
        Options.of(units=["layers"])
    assert Options.of(["all"], labels=False).parts == frozenset(PARTS) - {"separability", "curved"}
    assert Options.of(["dimension"]).parts == frozenset()


def test_files(analysis: Analysis, tmp_path: Path) -> None:
    written = {path.name for path in write_analysis(analysis, tmp_path)}
    assert {"heads.csv", "blocks.csv", "stages.csv", "statistics.json", "spectra.parquet",
            "similarity.parquet", "fisher.csv", "class_activation.csv", "attention.csv",
            "stages.tex", "stages.md", "projected_stages.tex", "blocks.md"} <= written  # fmt: skip
    record = json.loads((tmp_path / "tables" / "statistics.json").read_text())
    assert record["skipped"] == {}
    back = read_parquet(tmp_path / "tables" / "spectra.parquet")
    np.testing.assert_array_equal(back["share"], analysis.tables["spectra"]["share"])
    assert not [p for p in (tmp_path / "tables").iterdir() if p.name.startswith(".")]
