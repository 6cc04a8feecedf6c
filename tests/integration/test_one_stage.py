"""Encoders of one stage through the main job, to the page: blocks stand where stages would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from one_stage import N_BLOCKS, N_HEADS, save_one_stage
from typer.testing import CliRunner

from residual_audio.cli.app import build
from residual_audio.pipeline.run import run
from residual_audio.pipeline.run_settings import RunSettings

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


def small_ast(folder: Path) -> str:
    """A folder as transformers writes it, random weights."""
    from transformers import ASTConfig, ASTFeatureExtractor, ASTModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = ASTConfig(**sizes, intermediate_size=24, num_mel_bins=32, max_length=96)
    ASTModel(config).save_pretrained(folder)
    ASTFeatureExtractor(num_mel_bins=32, max_length=96).save_pretrained(folder)
    return f"ast:{folder}"


def test_run_without_a_text_side_does_every_step(tmp_path: Path) -> None:
    """Classes are centroids of training clips; nothing is left out but words."""
    model, out = small_ast(tmp_path / "ast"), tmp_path / "run"
    asked = RunSettings(
        model, "synthetic", out, data_options={"n_clips": 82}, n_folds=2, n_exact=4,
        n_previews=4, quick=True,
    )  # fmt: skip
    finished = run(asked)
    assert not finished.left_out
    assert finished.zero_shot is not None
    assert finished.zero_shot.task == "centroids"
    assert "data:image/png" in (out / "report.html").read_text()
    assert (out / "atlas" / "index.html").is_file()
    (result,) = (out / "results").glob("*centroids*.json")
    scores = {s["name"]: s for s in json.loads(result.read_text())["scores"]}
    assert scores["top1"]["n"] == 82
    adapted = (out / "tables" / "adapted.csv").read_text()
    assert "nearest class centroid" in adapted
    assert "ResiDual," in adapted
    assert next((out / "gains").iterdir(), None) is not None


@pytest.mark.parametrize("kind", ["m2d", "whisper"])
def test_extract_analyse_and_report_know_one_stage(kind: str, tmp_path: Path) -> None:
    model, out = save_one_stage(tmp_path / kind, kind), tmp_path / "run"
    asked = ("--data-option", "n_clips=41", "--capture", "heads,blocks,stages,moments,attention")
    call("extract", "--model", model, "--dataset", "synthetic", "--out", out, *asked)
    call("analyse", out, "--no-figures")
    call("report", out)
    check(out)
