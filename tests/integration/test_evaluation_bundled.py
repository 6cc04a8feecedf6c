"""The evaluation suite with the bundled model on sounds it can be expected to know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from residual_audio.data.registry import load_dataset
from residual_audio.embeddings.prompts import find_prompts
from residual_audio.errors import ModelError
from residual_audio.evaluation.composition import evaluate_compa
from residual_audio.evaluation.retrieval import evaluate_retrieval
from residual_audio.evaluation.zero_shot import evaluate_zero_shot
from residual_audio.geometry.cloud_sources import clouds_of_model
from residual_audio.geometry.probes import probe
from residual_audio.models.registry import load_model


@pytest.fixture(scope="module")
def nano() -> Any:
    try:
        return load_model("nano", "cpu")
    except ModelError as error:
        pytest.skip(f"the bundled model is not there: {error}")


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "evaluation-cache"  # shared by the tests of this file
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(folder))


def test_synthetic_sounds_are_named_found_and_told_apart(nano: Any) -> None:
    data = load_dataset("synthetic", n_clips=82, seed=99)
    prompts = find_prompts("dataset", data.template)
    named = evaluate_zero_shot(nano, data, prompts, n_resamples=200)
    assert named["top1"].value > 3 * (named["top1"].chance or 0)
    assert named["map"].value > 1.5 * (named["map"].chance or 0)
    assert named.provenance["model"]["sha256"] == nano.sha256
    found = evaluate_retrieval(nano, data, n_resamples=200)
    assert found["t2a_r10"].value > 1.5 * (found["t2a_r10"].chance or 0)
    shape = probe(clouds_of_model(nano, data, prompts), n_halves=4)
    assert shape["pair_auc"].value > 0.6
    assert shape["rankme_text"].value > 5


def test_compositions_have_scores_with_chance(nano: Any) -> None:
    data = load_dataset("synthetic", kind="order", n_clips=24, seed=99)
    result = evaluate_compa(nano, data)
    assert result["h"].n == 12
    assert result["h"].value <= min(result["f"].value, result["g"].value)
    assert result["h"].chance == pytest.approx(1 / 6)
    assert result["h"].value > result["h"].chance  # it was taught to
    failures = result.details["failures"]
    assert sum(failures["share"].values()) == pytest.approx(1 if failures["n_failing"] else 0)


def test_a_few_real_recordings(nano: Any, shared_dir: Path) -> None:
    data = load_dataset("esc50", shared_dir / "data" / "esc50-folds1-4").select(
        folds=["4"], limit=50
    )
    result = evaluate_zero_shot(nano, data, find_prompts("ensemble"), n_resamples=200)
    assert result["top5"].value > 2 * (result["top5"].chance or 0)
    assert result.details["skipped"] == {}
