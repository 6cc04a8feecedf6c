"""The audio tower in onnxruntime: the same numbers, for any number of clips."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from small_clap import save_small_clap

from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models import onnx_tower
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.registry import load_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> AudioTextModel:
    return load_model(f"hf:{save_small_clap(tmp_path_factory.mktemp('clap'))}", device="cpu")


def test_any_number_of_clips_and_the_heads(model: AudioTextModel, tmp_path: Path) -> None:
    assert onnx_tower.save(model, tmp_path / "out", heads=True) < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    attention = [str(site) for site in model.encoder.sites if site.kind == "attention"]
    assert [o.name for o in session.get_outputs()] == ["embedding", *attention]
    tower = onnx_tower.Tower(model, heads=True)
    for n in (1, 5):
        waves = 0.1 * torch.randn(n, model.spec.n_samples, generator=torch.manual_seed(n))
        features = model.features(waves)
        with torch.no_grad():
            want = tower(features)
        found = session.run(None, {"features": features.numpy()})
        for got, ours in zip(found, want, strict=True):
            np.testing.assert_allclose(got, ours.numpy(), atol=1e-4)
    spec = json.loads((tmp_path / "out" / "front_end.json").read_text())
    assert FrontEndSpec.from_dict(spec) == model.spec


def test_a_pass_after_the_export_is_as_before(model: AudioTextModel, tmp_path: Path) -> None:
    features = model.features(0.1 * torch.randn(2, model.spec.n_samples))
    with torch.no_grad():
        before = model.joint(model.encode(features))
        onnx_tower.save(model, tmp_path / "out")
        assert torch.equal(model.joint(model.encode(features)), before)


def test_a_graph_that_differs_is_not_written(
    model: AudioTextModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_tower, "_difference", lambda *given: 0.01)
    with pytest.raises(ModelError, match="differs from its own pass"):
        onnx_tower.save(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
