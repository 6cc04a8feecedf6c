"""Gains as a LoRA: PEFT opens the adapter on transformers' own model and gives our embedding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from heard import embed_audio
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel, get_peft_model
from small_clap import save_small_clap
from transformers import ClapFeatureExtractor, ClapModel

from residual_audio.errors import InputError, ModelError
from residual_audio.metrics.spectra import fit_spectrum
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.peft_adapter import save_adapter
from residual_audio.models.registry import load_model
from residual_audio.reweight import folded_checkpoint
from residual_audio.reweight.acting import gains_label
from residual_audio.reweight.folded_checkpoint import Layout, Wrapping, fold_copy, write_folded
from residual_audio.reweight.gains import coarse
from residual_audio.reweight.lora import LowRank
from residual_audio.reweight.low_rank_form import low_rank_form, trained_form
from residual_audio.reweight.network import NetworkGains
from residual_audio.types import Gains, Result, Score


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_clap(tmp_path_factory.mktemp("clap"))


@pytest.fixture
def model(folder: Path) -> AudioTextModel:
    return load_model(f"hf:{folder}", device="cpu")


@pytest.fixture(scope="module")
def features(folder: Path) -> torch.Tensor:
    waves = [np.random.default_rng(1).normal(0, 0.1, 480_000).astype(np.float32)]
    extractor = ClapFeatureExtractor.from_pretrained(folder)
    return extractor(waves, sampling_rate=48_000, return_tensors="pt")["input_features"]


def some_gains(model: AudioTextModel, **about) -> Gains:
    """Two heads of one site, one with a coarse gain, a whole site after them, an MLP, the latent;
    some gains are 1."""
    rng = np.random.default_rng(0)
    widths = {"s2.b5.h0": 2, "s2.b5.h3": 2, "s2.b5.attention": 32, "s1.b0.mlp": 16, "output": 64}
    spectra = {u: fit_spectrum(rng.normal(size=(90, w)) + 0.3) for u, w in widths.items()}
    spectra["s2.b5.h3"] = coarse(spectra["s2.b5.h3"])
    gains = {u: rng.uniform(0.3, 1.8, max(1, len(s.basis))) for u, s in spectra.items()}
    gains["s2.b5.attention"][5:] = 1.0
    means = dict.fromkeys(gains, 0.8) if about.get("keep_mean", True) else {}
    return Gains(gains, spectra, means=means, **about)


@torch.no_grad()
def theirs(model: torch.nn.Module, features: torch.Tensor) -> np.ndarray:
    found = model.get_audio_features(input_features=features)
    vectors = getattr(found, "pooler_output", found)
    return torch.nn.functional.normalize(vectors, dim=-1).numpy()


@torch.no_grad()
def ours(model: AudioTextModel, features: torch.Tensor, gains: Gains | None) -> np.ndarray:
    acting = None if gains is None else NetworkGains(gains, model.encoder.sites)
    encoded = model.encode(features[:, 0], edit=None if acting is None else acting.edit())
    joint = model.joint(encoded if acting is None else acting.output(encoded))
    return torch.nn.functional.normalize(joint, dim=-1).numpy()


@pytest.mark.parametrize("keep_mean", [True, False])
def test_peft_opens_the_adapter_and_gives_our_embedding(
    folder, model, features, tmp_path, keep_mean
):
    gains = some_gains(model, keep_mean=keep_mean)
    before, want = ours(model, features, None), ours(model, features, gains)
    assert np.abs(before - want).max() > 1e-3
    write_folded(fold_copy(model, [gains]), "peft", tmp_path / "out")
    base = ClapModel.from_pretrained(folder).eval()
    adapted = PeftModel.from_pretrained(base, tmp_path / "out").eval()
    np.testing.assert_allclose(theirs(adapted, features), want, atol=1e-5)
    with adapted.disable_adapter():
        np.testing.assert_allclose(theirs(adapted, features), before, atol=1e-5)
    merged = adapted.merge_and_unload()
    np.testing.assert_allclose(theirs(merged, features), want, atol=1e-5)


def test_one_rank_a_component_that_moved(model, tmp_path):
    write_folded(fold_copy(model, [some_gains(model)]), "peft", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    ranks = config["rank_pattern"]
    stem = "audio_model.audio_encoder.layers"
    assert ranks[f"{stem}.2.blocks.5.attention.output.dense"] == 2 + 2 + 5
    assert ranks[f"{stem}.1.blocks.0.output.dense"] == 16
    assert config["r"] == 64  # of the latent
    assert config["lora_bias"] is True


def test_gains_one_after_another_are_one_adapter(folder, model, features, tmp_path):
    first, second = some_gains(model), some_gains(model, keep_mean=False)
    write_folded(fold_copy(model, [first, second]), "native", tmp_path / "folded")
    want = ours(load_model(str(tmp_path / "folded"), device="cpu"), features, None)
    again = load_model(f"hf:{folder}", device="cpu")
    write_folded(fold_copy(again, [first, second]), "peft", tmp_path / "out")
    base = ClapModel.from_pretrained(folder).eval()
    adapted = PeftModel.from_pretrained(base, tmp_path / "out").eval()
    np.testing.assert_allclose(theirs(adapted, features), want, atol=1e-5)


def test_gains_of_one_are_no_adapter(model, tmp_path):
    given = some_gains(model)
    ones = Gains({u: np.ones_like(v) for u, v in given.gains.items()}, given.spectra)
    assert low_rank_form(model, [ones]) == {}
    with pytest.raises(InputError, match="nothing moved"):
        write_folded(fold_copy(model, [ones]), "peft", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_transformers_has_not_is_refused(tmp_path):
    nano = load_model("nano", device="cpu")
    spectrum = fit_spectrum(np.random.default_rng(0).normal(size=(40, 12)))
    gains = Gains({"s3.b1.h0": np.full(12, 0.5)}, {"s3.b1.h0": spectrum})
    with pytest.raises(ModelError, match="no counterpart in transformers"):
        write_folded(fold_copy(nano, [gains]), "peft", tmp_path / "out")


def test_our_low_rank_baseline_is_the_lora_of_peft(folder, model, features, tmp_path):
    """The same numbers in PEFT's own layers give the same embedding; B = 0 begins as no change."""
    sites = [s for s in model.encoder.sites if s.kind == "attention" and s.stage == 2][-2:]
    lora = LowRank(model.encoder.sites, sites, rank=3, seed=0)
    with torch.no_grad():
        start = model.joint(model.encode(features[:, 0], edit=lora.edit()))
        for up in lora.up:
            torch.nn.init.normal_(up, 0, 0.3)
        want = model.joint(model.encode(features[:, 0], edit=lora.edit()))
    normal = torch.nn.functional.normalize
    np.testing.assert_allclose(normal(start).numpy(), ours(model, features, None), atol=1e-6)
    save_adapter(model, trained_form(lora), tmp_path / "out", "small")
    config = LoraConfig.from_pretrained(tmp_path / "out")
    assert (config.r, config.lora_alpha, config.lora_bias) == (3, 3, False)
    theirs_before = get_peft_model(ClapModel.from_pretrained(folder).eval(), config)
    np.testing.assert_allclose(theirs(theirs_before, features), normal(start).numpy(), atol=1e-5)
    n_theirs = sum(p.numel() for n, p in theirs_before.named_parameters() if "lora_" in n)
    assert n_theirs == sum(p.numel() for p in lora.parameters())
    adapted = PeftModel.from_pretrained(ClapModel.from_pretrained(folder).eval(), tmp_path / "out")
    np.testing.assert_allclose(theirs(adapted, features), normal(want).numpy(), atol=1e-5)


@pytest.mark.parametrize("to", ["native", "hf", "laion", "peft"])
def test_the_model_that_was_given_stays_as_it_is(model, tmp_path, to: Layout):
    gains = some_gains(model)
    waves = [np.random.default_rng(1).normal(0, 0.1, 480_000).astype(np.float32)]
    before = embed_audio(model, waves)
    made = fold_copy(model, [gains])
    write_folded(made, to, tmp_path / ("out.pt" if to == "laion" else "out"))
    np.testing.assert_array_equal(embed_audio(model, waves), before)
    assert np.abs(embed_audio(made.model, waves) - before).max() > 1e-3


def test_an_adapter_that_says_something_else_is_not_written(model, tmp_path, monkeypatch):
    made = fold_copy(model, [some_gains(model)])
    other = low_rank_form(model, [some_gains(model, keep_mean=False)])
    monkeypatch.setattr(folded_checkpoint, "low_rank_form", lambda *_: other)
    with pytest.raises(ModelError, match="folding changed the embedding"):
        write_folded(made, "peft", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_card_takes_only_what_was_measured_with_these_gains(model, tmp_path):
    made = fold_copy(model, [some_gains(model)])
    label = gains_label(made.gains[0])
    score = (Score("top1", 0.5, 0.4, 0.6, 20, 0.1),)
    for task, name, why in (
        ("zero-shot", "nano", "not about hf:"),
        ("zero-shot", model.name, "without these gains"),
        ("adapted", f"{model.name} + gains 00000000", f"not about {label}"),
    ):
        wrapping = Wrapping((Result(task, name, "esc50", "all", score),))
        with pytest.raises(InputError, match=why):
            write_folded(made, "peft", tmp_path / "out", wrapping)
        assert not (tmp_path / "out").exists()
    right = Result("adapted", f"{model.name} + {label}", "esc50", "all", score)
    write_folded(made, "peft", tmp_path / "out", Wrapping((right,)))
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert [found.metric_value for found in card.data.eval_results] == [0.5]
