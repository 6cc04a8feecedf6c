"""Runs side by side: matched n, paired over heads, by relative depth where topologies differ."""

import numpy as np
import pytest
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.analysis.run_comparison import compare_head_tables
from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.table import Table, read_csv


def heads(blocks: list[tuple[int, int]], n_heads: int, shift: float = 0.0, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    ids = [f"s{s}.b{b}.h{h}" for s, b in blocks for h in range(n_heads)]
    index = np.repeat(np.arange(len(blocks)), n_heads)
    return Table(
        "heads",
        {
            "head_id": np.array(ids, dtype=object),
            "stage": np.array([int(i[1]) for i in ids]),
            "block": np.array([int(i.split(".")[1][1:]) for i in ids]),
            "block_index": index,
            "pca_99": index + shift + 0.1 * rng.normal(size=len(ids)),
        },
    )


SWIN = [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_same_heads_are_paired_and_a_shift_is_found():
    found = compare_head_tables({"a": heads(SWIN, 6), "b": heads(SWIN, 6, 1.0, 1)}, 100)
    assert found.same_topology
    row = next(found.paired.rows())
    assert row["difference"] == pytest.approx(1.0, abs=0.1)
    assert row["q"] < 0.001
    assert row["rank_correlation"] > 0.9
    cv = {r["stage"]: r["cv"] for r in found.variation.rows()}
    # stage 0 has means 0.5 and 1.5: standard deviation 0.707 of a mean of 1
    assert cv[0] == pytest.approx(0.707, abs=0.1)
    assert cv[1] < cv[0]


def test_equal_runs_are_told_apart_no_more_often_than_stated():
    clear = 0
    for seed in range(60):
        pair = {"a": heads(SWIN, 6, seed=2 * seed), "b": heads(SWIN, 6, seed=2 * seed + 1)}
        clear += next(compare_head_tables(pair, 100).paired.rows())["q"] <= 0.05
    assert clear / 60 <= 0.12


def test_other_topologies_are_compared_by_depth():
    flat = [(0, b) for b in range(8)]
    found = compare_head_tables({"swin": heads(SWIN, 6), "vit": heads(flat, 4)}, 100)
    assert found.place == "quarter"
    assert len(found.paired) == 0
    assert set(found.places["quarter"].tolist()) == {0, 1, 2, 3}
    assert found.blocks["depth"].max() == 1


def test_of_small_stores_by_the_command(tmp_path):
    for name, seed, n in (("first", 0, 48), ("second", 1, 40)):
        ra.extract("nano", ra.load_dataset("synthetic", n_clips=n, seed=seed), tmp_path / name)
    args = ["compare-runs", str(tmp_path / "first"), str(tmp_path / "second")]
    done = CliRunner().invoke(build(), [*args, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    places = read_csv(tmp_path / "out" / "runs_places.csv")
    assert set(places["run"]) == {"first", "second"}
    assert (places["n_heads"] == [8, 16, 96, 64] * 2).all()
    assert "40 clips of each run" in (tmp_path / "out" / "runs.md").read_text()
    assert (tmp_path / "out" / "runs.png").stat().st_size > 10_000
    with pytest.raises(InputError, match="two runs or more"):
        ra.compare_runs([tmp_path / "first"])
