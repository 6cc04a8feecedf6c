"""The benches run, and say what they measured; how fast is not a matter of tests."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from residual_audio.benchmarks import analyse_speed as battery_bench
from residual_audio.benchmarks import large_store, run_speed
from residual_audio.benchmarks.demo_speed import step_seconds
from residual_audio.benchmarks.kill import Survived
from residual_audio.benchmarks.machine import Company, machine
from residual_audio.benchmarks.memory import growth
from residual_audio.benchmarks.speed_page import speed_page
from residual_audio.benchmarks.tar_growth import GrowthSettings, bench_growth
from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.store.reader import open_store
from residual_audio.store.sampled import sampled

runner = CliRunner()


def test_capture_reports_a_share_for_each_kind() -> None:
    call = ["bench", "capture", "--rounds", "1", "--capture", "heads", "--json"]
    found = json.loads(runner.invoke(build(), call).stdout)
    assert found["forward_s_per_clip"] > 0
    assert list(found["cost"]) == ["heads"]


def test_onnx_is_timed_beside_our_own_pass() -> None:
    call = ["bench", "onnx", "--batch-size", "1", "--repeats", "1", "--json"]
    found = json.loads(runner.invoke(build(), call).stdout)
    assert found["ratio"] == pytest.approx(found["onnx_s"] / found["ours_s"])
    assert 0 < found["largest_difference"] < 1e-4


def test_memory_of_a_small_extraction_is_measured() -> None:
    call = ["bench", "memory", "--clips", "4,8", "--capture", "heads", "--json"]
    found = json.loads(runner.invoke(build(), call).stdout)
    assert [run["clips"] for run in found["runs"]] == [4, 8]
    assert found["growth"] == pytest.approx(growth(found["runs"]), abs=1e-3)


def test_growth_from_tar_shards_and_of_an_index_is_measured() -> None:
    found = bench_growth(GrowthSettings([6, 12], n_index=5000))
    assert [run["clips"] for run in found["runs"]] == [6, 12]
    assert found["memory_growth"] == pytest.approx(1, abs=0.3)
    assert found["index"]["clips"] == 5000
    assert 0 < found["index"]["file_mb"] < 1


def test_a_large_store_is_written_verified_and_analysed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(large_store, "CLIPS_A_SHARD", 60)
    monkeypatch.setattr(large_store, "sampled", lambda store: sampled(store, most=80))
    found = large_store.bench_large_store(tmp_path, 150)
    assert (found["clips"], found["heads"], found["searched"]) == (150, 184, 80)
    assert found["problems"] == 0
    assert found["analyse_peak_mb"] > 0
    # no two clips are the same, in any shard
    rows = open_store(tmp_path).heads("s0.b0.attention").reshape(150, -1)
    assert len(np.unique(rows, axis=0)) == 150


def test_the_steps_of_a_run_are_timed_and_the_slowest_is_named(tmp_path, monkeypatch) -> None:
    def work(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    def run(settings, progress):  # type: ignore[no-untyped-def]
        for name, seconds in (("extract", 0.2), ("analyse", 0.3), ("evaluate", 0.0)):
            work(seconds)
            progress.note(f"{name:9} done")
        return SimpleNamespace(n_clips=90, left_out={"evaluate": "no text side"})

    monkeypatch.setattr(run_speed, "run", run)
    found = run_speed.bench_run("nano", 90, tmp_path)
    assert found["slowest"] == "analyse"
    assert not found["encoder_leads"]
    assert found["slowest_over_encoder"] == pytest.approx(1.5, rel=0.3)
    assert json.loads((tmp_path / run_speed.RECORD).read_text()) == found["steps"]
    with pytest.raises(InputError, match="other settings"):
        run_speed.bench_run("nano", 91, tmp_path)


def test_parts_and_sizes_of_growth_that_make_no_sense() -> None:
    with pytest.raises(InputError, match="no part 'moon'"):
        GrowthSettings(parts=("moon",))
    with pytest.raises(InputError, match="from few clips to many"):
        GrowthSettings(sizes=(10, 5))


@pytest.mark.parametrize("fault", ["identical", "shards_lost", "shards_changed", "problems"])
def test_a_store_is_whole_only_without_any_fault(fault: str) -> None:
    good = {"identical": True, "shards_lost": 0, "shards_changed": 0, "problems": []}
    bad = {"identical": False, "shards_lost": 1, "shards_changed": 1, "problems": ["shard-0"]}
    assert Survived(3, 0, 1.0, **good).whole  # type: ignore[arg-type]
    assert not Survived(3, 0, 1.0, **{**good, fault: bad[fault]}).whole  # type: ignore[arg-type]


def test_the_battery_and_its_peer_measure_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(battery_bench, "STAGES", ((2, 48), (3, 96)))
    call = ["bench", "analyse", "--clips", "150", "--peer-heads", "1", "--no-growth", "--json"]
    found = json.loads(runner.invoke(build(), call, catch_exceptions=False).stdout)
    assert found["n_heads"] == 5
    assert found["peer_heads"] == 2
    assert found["peer_scaled"] is True
    assert found["ratio"] == pytest.approx(found["peer_s"] / found["ours_s"])
    assert found["largest_difference"] < 1e-5  # the peer keeps float32 where it is given float32


def test_memory_of_the_battery_grows_with_the_clips() -> None:
    rows = battery_bench.bench_growth((60, 120), 0, sample=2)
    assert [row["n_clips"] for row in rows] == [60, 120]
    assert rows[1]["peak_mb"] > rows[0]["peak_mb"] > 0


def test_only_studies_that_the_guides_name_are_scripts() -> None:
    project = Path(__file__).resolve().parents[3]
    guides = "".join(path.read_text() for path in (project / "docs").glob("*.md"))
    scripts = (project / "benchmarks").glob("*.py")
    for script in (path for path in scripts if "__main__" in path.read_text()):
        assert f"benchmarks/{script.name}" in guides


def test_steps_of_the_demo_are_read_from_what_it_says() -> None:
    said = (
        "extract   205 clips\nanalyse      5.1 s · 184 heads\nfold 3: 3 of 5\natlas  12.0 s · x\n"
    )
    assert step_seconds(said) == {"analyse": 5.1, "atlas": 12.0}


def test_the_page_of_ratios_says_machine_date_load_and_what_was_reached(tmp_path) -> None:
    quiet = {"date": "2026-01-02", "processor": "P", "cores": 2, "load": 0.05}
    bf16 = {"bench": "encode bf16", "ratio": 2.5, "cosine_min": 0.99991234, "machine": quiet}
    (tmp_path / "a.json").write_text(json.dumps(bf16))
    busy = {"bench": "analyse", "ratio": 45.0, "machine": {**quiet, "load": 1.5}}
    (tmp_path / "b.json").write_text(json.dumps(busy))
    runs = [{"clips": 1000}, {"clips": 4000}]
    grown = {"bench": "growth", "runs": runs, "memory_growth": 1.01, "flat": True, "machine": quiet}
    (tmp_path / "c.json").write_text(json.dumps(grown))
    page = speed_page(tmp_path)
    where = "P, 2 cores | 2026-01-02 | 0.05"
    assert f"| 2.5 | ≥ 3.0 | no | {where} | `a.json` |" in page
    assert f"| 0.9999123 | ≥ 0.9995 | yes | {where} | `a.json` |" in page
    assert "| 45 (busy) | ≥ 30 | yes |" in page
    assert "most clips extracted from tar shards | 4,000 |" in page
    assert f"| 1.01 | ≤ 1.1 | yes | {where} | `c.json` |" in page
    (tmp_path / "d.json").write_text(json.dumps({"ratio": 2.0}))
    with pytest.raises(InputError, match=r"'d.json' does not say on which machine"):
        speed_page(tmp_path)
    with pytest.raises(InputError, match="no result files"):
        speed_page(tmp_path / "empty")


def test_load_is_what_others_do_and_not_what_is_measured() -> None:
    since = Company.now()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    found = machine(since)
    assert found["cores"] >= 1
    assert found["processor"]
    assert 0 <= found["load"] <= found["cores"] + 0.2
    own = Company(since.at, since.all_s, since.own_s + 1e6)  # others can only have done more
    assert own.since() >= found["load"]


def test_the_documented_page_is_what_its_files_say() -> None:
    docs = Path(__file__).parents[3] / "docs"
    assert (docs / "performance.md").read_text() == speed_page(docs / "results" / "speed")
