"""Encoders of one stage through the main job, to the page: blocks stand where stages would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from one_stage import N_BLOCKS, N_HEADS, save_one_stage
from typer.testing import CliRunner

from residual_audio.cli.app import build

runner = CliRunner()


def call(*words: object) -> str:
    found = runner.invoke(build(), [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.output


def check(run: Path) -> None:
    """Statistics compare blocks, and the figures that compare stages are there."""
    statistics = json.loads((run / "tables" / "statistics.json").read_text())
    assert statistics["n_heads"] == N_BLOCKS * N_HEADS
    assert statistics["grouped_by"] == "block"
    test = statistics["metrics"]["pr"]
    assert test["anova"]["df_between"] == N_BLOCKS - 1
    assert {pair["a"] for pair in test["pairs"]} == {"b0", "b1"}
    for name in ("boxplots", "head_similarity", "progression"):
        assert (run / "figures" / f"{name}.png").is_file(), name
    assert "data:image/png" in (run / "report.html").read_text()


def test_run_of_one_stage_ends_in_a_page(tmp_path: Path) -> None:
    model, out = save_one_stage(tmp_path / "ast", "ast"), tmp_path / "run"
    asked = ("--data-option", "n_clips=82", "--exact", 4, "--folds", 2)
    said = call("run", "--model", model, "--dataset", "synthetic", "--out", out, *asked)
    assert "left out" not in said
    check(out)


@pytest.mark.parametrize("kind", ["m2d", "whisper"])
def test_extract_analyse_and_report_know_one_stage(kind: str, tmp_path: Path) -> None:
    model, out = save_one_stage(tmp_path / kind, kind), tmp_path / "run"
    asked = ("--data-option", "n_clips=41", "--capture", "heads,blocks,stages,moments,attention")
    call("extract", "--model", model, "--dataset", "synthetic", "--out", out, *asked)
    call("analyse", out, "--no-figures")
    call("report", out)
    check(out)
