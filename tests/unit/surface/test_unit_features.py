"""An autoencoder of a unit's tokens, read back over the clips of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.atlas.features import read_features
from residual_audio.errors import InputError
from residual_audio.surface.model import Model
from residual_audio.surface.unit_features import unit_features

UNIT = "s1.b0.mlp"


def write_autoencoder(folder: Path, width: int) -> np.ndarray:
    """A topk autoencoder with the two strongest of six units."""
    folder.mkdir()
    weights = np.random.default_rng(0).normal(size=(width, 6)).astype(np.float32)
    held = {"W_enc": weights, "W_dec": np.ascontiguousarray(weights.T)}
    biases = {"b_enc": np.zeros(6, np.float32), "b_dec": np.zeros(width, np.float32)}
    save_file({**held, **biases}, folder / "sae_weights.safetensors")
    (folder / "cfg.json").write_text(json.dumps({"architecture": "topk", "k": 2}))
    return weights


def test_each_clip_has_the_strongest_of_its_tokens(tmp_path: Path) -> None:
    model = Model.copy_of(tiny_model())
    sounds = ra.load_dataset("synthetic", n_clips=5)
    run = ra.extract(model, sounds, tmp_path / "run")
    rate = model.sample_rate_hz
    waves = [sounds.read(clip, rate) for clip in sounds.clips]
    cache = model.run(waves, keep=UNIT, sample_rate=rate)
    weights = write_autoencoder(tmp_path / "sae", cache[UNIT].shape[-1])
    path = unit_features(run, tmp_path / "sae", UNIT)
    found = read_features(path, run.store)
    order = range(len(waves))
    for row, i in enumerate(order):
        pre = np.asarray(cache[UNIT][i], np.float64) @ weights
        kept = np.where(pre >= np.sort(pre, axis=1)[:, -2:-1], np.maximum(pre, 0), 0)
        np.testing.assert_allclose(found.activations[:, row], kept.max(0), rtol=1e-4, atol=1e-5)
    with safe_open(path, "numpy") as file:
        assert f"sae on {UNIT}: topk, " in file.metadata()["name"]
    with pytest.raises(InputError, match="trained on something else"):
        unit_features(run, tmp_path / "sae", "s0.b0.h0")
    with pytest.raises(InputError, match="give its folder"):
        ra.atlas(run, unit=UNIT)
