"""Folded checkpoints: transformers and our own layout open them and give our embeddings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from heard import embed_audio
from small_clap import save_small_clap
from transformers import ClapFeatureExtractor, ClapModel

from residual_audio.errors import InputError, ModelError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.registry import load_model
from residual_audio.reweight.folded_checkpoint import fold_copy, record_path, write_folded
from residual_audio.reweight.network import NetworkGains
from residual_audio.types import Gains


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_clap(tmp_path_factory.mktemp("clap"))


@pytest.fixture
def model(folder: Path) -> AudioTextModel:
    return load_model(f"hf:{folder}", device="cpu")


def make_gains(model: AudioTextModel, **about) -> Gains:
    rng = np.random.default_rng(0)
    units = [h for site in model.encoder.sites for h in site.heads]
    spectra = {str(h): fit_spectrum(rng.normal(size=(20, 2)) + 0.3) for h in units}
    spectra["s1.b0.mlp"] = fit_spectrum(rng.normal(size=(40, 16)))
    spectra["output"] = fit_spectrum(rng.normal(size=(90, 64)))
    gains = {unit: rng.uniform(0.3, 1.8, size=len(s.basis)) for unit, s in spectra.items()}
    return Gains(gains, spectra, means=dict.fromkeys(gains, 0.8), **about)


def waves() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.normal(0, 0.1, 480_000).astype(np.float32),
        rng.normal(0, 0.2, 90_000).astype(np.float32),
    ]


@torch.no_grad()
def edited(model: AudioTextModel, gains: Gains) -> np.ndarray:
    acting = NetworkGains(gains, model.encoder.sites)
    batch = torch.from_numpy(np.stack([model.windows(w)[0] for w in waves()]))
    encoded = model.encode(model.front_end(batch), edit=acting.edit())
    joint = model.joint(acting.output(encoded))
    return torch.nn.functional.normalize(joint, dim=-1).numpy()


def test_transformers_opens_the_export_and_gives_our_embeddings(folder, model, tmp_path):
    gains = make_gains(model)
    before, want = embed_audio(model, waves()), edited(model, gains)
    assert np.abs(before - want).max() > 1e-3
    made = fold_copy(model, [gains])
    assert made.difference < 1e-5
    write_folded(made, "hf", tmp_path / "out")
    theirs = ClapModel.from_pretrained(tmp_path / "out").eval()
    extractor = ClapFeatureExtractor.from_pretrained(tmp_path / "out")
    features = extractor(waves(), sampling_rate=48_000, return_tensors="pt")["input_features"]
    with torch.no_grad():
        found = theirs.get_audio_features(input_features=features)
    found = torch.nn.functional.normalize(getattr(found, "pooler_output", found), dim=-1)
    np.testing.assert_allclose(found.numpy(), want, atol=1e-5)


def test_our_own_layout_opens_and_records_the_gains(model, tmp_path):
    gains = make_gains(model)
    want = edited(model, gains)
    write_folded(fold_copy(model, [gains]), "native", tmp_path / "out")
    again = load_model(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(embed_audio(again, waves()), want, atol=1e-5)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["folded"]["gains"][0]["n"] > 0


def test_the_layout_of_laion_opens_and_holds_the_gains(model, tmp_path):
    from residual_audio.models import laion

    gains = make_gains(model)
    want = edited(model, gains)
    out = tmp_path / "adapted.pt"
    write_folded(fold_copy(model, [gains]), "laion", out)
    # its loader refuses names that the original does not have, and pickles with anything to run
    again = laion.load(str(out), text_heads=2, quantise=False)
    np.testing.assert_allclose(embed_audio(again, waves()), want, atol=1e-5)


def test_half_an_amount_and_none(model, folder, tmp_path):
    gains = make_gains(model)
    before = embed_audio(model, waves())
    write_folded(fold_copy(model, [gains], 0.0), "native", tmp_path / "none")
    found = embed_audio(load_model(str(tmp_path / "none"), device="cpu"), waves())
    np.testing.assert_allclose(found, before, atol=1e-6)


def test_gains_of_another_model_or_path_are_not_folded(model):
    stranger = make_gains(model, fitted_on={"model": {"name": "other", "sha256": "0" * 64}})
    with pytest.raises(ModelError, match="'other'"):
        fold_copy(model, [stranger])
    given = make_gains(model)
    inner = {"output": given.spectra["output"]}
    direct = Gains({"output": given.gains["output"]}, inner, path="direct")
    with pytest.raises(InputError, match="direct path"):
        fold_copy(model, [direct])


def test_gains_that_give_no_finite_embedding_are_not_folded(model):
    given = make_gains(model)
    huge = {unit: np.full_like(values, 1e30) for unit, values in given.gains.items()}
    with pytest.raises(ModelError, match="not finite"):
        fold_copy(model, [Gains(huge, given.spectra, path="network")])


@pytest.mark.parametrize(("to", "out"), [("hf", "out"), ("laion", "adapted.pt")])
def test_foreign_layouts_say_what_was_folded_in(model, tmp_path, to, out):
    gains = make_gains(model, fitted_on={"dataset": {"name": "esc50"}})
    write_folded(fold_copy(model, [gains], 0.5), to, tmp_path / out)
    record = json.loads(record_path(tmp_path / out).read_text())
    assert record["folded"]["amount"] == 0.5
    assert record["folded"]["gains"][0]["dataset"] == {"name": "esc50"}
    assert record["folded"]["gains"][0]["n"] > 0
    assert record["from"]["sha256"] == model.sha256
