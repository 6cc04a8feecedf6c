"""Answers by class centroids: every number known beforehand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from evaluation_fakes import D, FakeModel, dataset, labelled
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.errors import InputError
from residual_audio.evaluation.by_centroids import evaluate_by_centroids, evaluate_store
from residual_audio.types import Clip


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))


def audio_only() -> FakeModel:
    model = FakeModel("audio-only")
    model.text = None
    return model


def test_clips_of_a_class_find_each_other() -> None:
    data, _ = labelled(n_per_class=6, noise=0.1)
    result = evaluate_by_centroids(audio_only(), data)
    assert result.task == "centroids"
    assert result["top1"].value == 1.0
    assert result["top1"].chance == pytest.approx(1 / 6)
    assert result.details["centroids"]["folds"] == 3  # a class has three sources


def test_a_recording_is_never_its_own_proof() -> None:
    """Clips of one source are alike and say nothing of other sources of their class."""
    rng = np.random.default_rng(0)
    vectors, clips = {}, []
    for label in ("a", "b", "c", "d"):
        for source in range(4):
            own = rng.normal(size=D)
            for i in range(5):
                name = f"{label}{source}{i}"
                vectors[name] = own + 0.01 * rng.normal(size=D)
                clips.append(Clip(id=name, label=label, group=f"{label}{source}"))
    data = dataset(vectors, clips, classes=["a", "b", "c", "d"])
    top1 = evaluate_by_centroids(audio_only(), data)["top1"]
    assert top1.value < 0.6
    assert top1.low <= 0.25 <= top1.high


def test_one_source_a_class_is_refused() -> None:
    clips = [Clip(id=f"{c}{i}", label=c, group=c) for c in "ab" for i in range(3)]
    vectors = {clip.id: np.random.default_rng(i).normal(size=D) for i, clip in enumerate(clips)}
    with pytest.raises(InputError, match="no clip is left to make a centroid of class"):
        evaluate_by_centroids(audio_only(), dataset(vectors, clips, classes=["a", "b"]))


def test_the_surface_takes_centroids_where_there_is_no_text(tmp_path: Path) -> None:
    sounds = ra.load_dataset("synthetic", n_clips=205, duration_s=1.0)
    some = sounds.select(classes=["steady tone", "rain"])
    model = tiny_model(text=False)
    found = ra.evaluate(model, some)
    assert found.task == "centroids"
    assert ra.evaluate(tiny_model(), some).task == "zero-shot"
    assert ra.evaluate(tiny_model(), some, task="centroids").task == "centroids"
    kept = evaluate_store(ra.extract(model, some, tmp_path / "run").store)
    assert kept["top1"] == found["top1"]
