"""Opening AST and Whisper: transformers as the oracle, what is refused, and laws of all ViTs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from heard import embed_audio
from m2d_checkpoints import (
    NAME_2024,
    NAME_2025,
    bert,
    noise,
    put,
    put_tokenizer,
    state_2024,
    state_2025,
)
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    ASTConfig,
    ASTFeatureExtractor,
    ASTForAudioClassification,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from residual_audio.errors import ModelError
from residual_audio.models import ast, m2d, native, whisper
from residual_audio.models.registry import load_model
from residual_audio.types import Site


@pytest.fixture(scope="module")
def waves() -> list[np.ndarray]:
    """Short, exact, long and 1-sample clips at 16 kHz."""
    draw = np.random.default_rng(0)
    return [0.1 * draw.standard_normal(n).astype(np.float32) for n in (4000, 16_000, 40_000, 1)]


class Raw:
    points = frozenset({"raw"})

    def __init__(self) -> None:
        self.heads: dict[int, Tensor] = {}

    def __call__(self, point: str, where: Site | int, value: Tensor) -> None:
        assert isinstance(where, Site)
        self.heads[where.block] = value.flatten(2)


@pytest.fixture(scope="module")
def whisper_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = WhisperConfig(
        d_model=32,
        encoder_layers=3,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        vocab_size=50,
        max_source_positions=50,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = WhisperForConditionalGeneration(config).eval()
    noise(model)
    folder = tmp_path_factory.mktemp("whisper")
    model.save_pretrained(folder)
    WhisperFeatureExtractor(chunk_length=1).save_pretrained(folder)
    return folder


def test_whisper_equals_transformers(whisper_folder: Path, waves: list[np.ndarray]) -> None:
    theirs = WhisperForConditionalGeneration.from_pretrained(whisper_folder).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(whisper_folder)
    ours = load_model(f"whisper:{whisper_folder}", device="cpu")
    features = extractor(waves, sampling_rate=16_000, return_tensors="pt").input_features
    windows = torch.from_numpy(np.concatenate([ours.windows(wave) for wave in waves]))
    torch.testing.assert_close(ours.front_end(windows), features.transpose(1, 2), atol=2e-4, rtol=0)
    heads: dict[int, Tensor] = {}
    for i, layer in enumerate(theirs.model.encoder.layers):
        layer.self_attn.out_proj.register_forward_pre_hook(
            lambda module, args, i=i: heads.__setitem__(i, args[0])
        )
    tap = Raw()
    with torch.inference_mode():
        wanted = theirs.model.encoder(features).last_hidden_state
        got = ours.encode(features.transpose(1, 2), tap=tap)
    torch.testing.assert_close(got.tokens, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(got.latent, wanted.mean(1), atol=1e-5, rtol=0)
    for block, raw in heads.items():
        torch.testing.assert_close(tap.heads[block], raw, atol=1e-5, rtol=0)
    unit = torch.nn.functional.normalize(wanted.mean(1), dim=-1).numpy()
    np.testing.assert_allclose(embed_audio(ours, waves, batch_size=3), unit, atol=1e-5)
    with pytest.raises(ModelError, match="no text side"):
        ours.embed_text(["a dog"])


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", {"model_type": "clap"}, "not Whisper"),
        ("config.json", {"activation_function": "relu"}, "relu"),
        ("config.json", {"encoder_layers": 2}, "its tensors"),
        ("config.json", {"encoder_layers": 4}, "its tensors"),
        ("config.json", {"d_model": None}, "d_model"),
        ("preprocessor_config.json", {"chunk_length": 2}, "200 frames"),
    ],
)
def test_whisper_refuses(
    whisper_folder: Path, tmp_path: Path, file: str, change: dict[str, Any], said: str
) -> None:
    folder = copy(whisper_folder, tmp_path)
    values = {**json.loads((folder / file).read_text()), **change}
    values = {key: value for key, value in values.items() if value is not None}
    (folder / file).write_text(json.dumps(values))
    with pytest.raises(ModelError, match=said):
        whisper.load(str(folder))


def copy(folder: Path, to: Path) -> Path:
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize(
    "missing",
    [
        "model.encoder.layers.1.self_attn.k_proj.weight",
        "model.encoder.layers.1.self_attn.q_proj.bias",
        "model.encoder.layers.0.fc1.bias",
        "model.encoder.embed_positions.weight",
    ],
)
def test_whisper_names_a_missing_tensor(whisper_folder: Path, tmp_path: Path, missing: str) -> None:
    folder = copy(whisper_folder, tmp_path)
    state = load_file(folder / "model.safetensors")
    del state[missing]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ModelError, match="missing"):
        whisper.load(str(folder))


@pytest.fixture(scope="module")
def ast_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = ASTConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        num_mel_bins=64,
        max_length=100,
        frequency_stride=8,
        time_stride=12,
        qkv_bias=False,
        num_labels=5,
    )
    model = ASTForAudioClassification(config).eval()
    noise(model)
    folder = tmp_path_factory.mktemp("ast")
    model.save_pretrained(folder)
    ASTFeatureExtractor(num_mel_bins=64, max_length=100, mean=-5.0, std=3.0).save_pretrained(folder)
    return folder


def test_ast_equals_transformers(ast_folder: Path, waves: list[np.ndarray]) -> None:
    theirs = ASTForAudioClassification.from_pretrained(ast_folder).eval()
    extractor = ASTFeatureExtractor.from_pretrained(ast_folder)
    ours = load_model(f"ast:{ast_folder}", device="cpu")
    some = waves[:3]  # transformers' extractor refuses a clip shorter than a frame
    features = extractor(some, sampling_rate=16_000, return_tensors="pt").input_values
    tap = Raw()
    with torch.inference_mode():
        wanted = theirs.audio_spectrogram_transformer(features)
        got = ours.encode(features, tap=tap)
    assert got.special is not None
    tokens = torch.cat([got.special, got.tokens], 1)
    torch.testing.assert_close(tokens, wanted.last_hidden_state, atol=1e-5, rtol=0)
    torch.testing.assert_close(got.latent, wanted.pooler_output, atol=1e-5, rtol=0)
    unit = torch.nn.functional.normalize(wanted.pooler_output, dim=-1).numpy()
    np.testing.assert_allclose(embed_audio(ours, some), unit, atol=1e-5)
    assert np.isfinite(embed_audio(ours, waves)).all()


def test_ast_refuses_another_model(whisper_folder: Path, ast_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="whisper"):
        ast.load(str(whisper_folder))
    folder = copy(ast_folder, tmp_path)
    state = load_file(folder / "model.safetensors")
    key = next(key for key in state if key.endswith("distillation_token"))
    del state[key]
    save_file(state, folder / "model.safetensors")
    with pytest.raises(ModelError, match="distillation_token"):
        ast.load(str(folder))


@pytest.mark.parametrize("kind", ["m2d", "m2d_2024", "stacked", "ast", "whisper"])
def test_same_vector_in_any_batch_and_after_conversion(
    kind: str, tmp_path: Path, whisper_folder: Path, ast_folder: Path, waves: list[np.ndarray]
) -> None:
    if kind == "m2d":
        folder = put(tmp_path, NAME_2025, state_2025())
        put_tokenizer(folder)
        model = m2d.load(str(folder), text_heads=2)
    elif kind == "m2d_2024":
        model = m2d.load(str(put(tmp_path, NAME_2024, state_2024())))
    elif kind == "stacked":
        model = m2d.load(str(put(tmp_path, NAME_2025, state_2025())) + "?features=stacked")
    else:
        model = ast.load(str(ast_folder)) if kind == "ast" else whisper.load(str(whisper_folder))
    clips = [*waves, waves[0][::-1].copy(), waves[1][::-1].copy()]
    alone = np.concatenate([embed_audio(model, [clip]) for clip in clips])
    together = embed_audio(model, clips[::-1], batch_size=6)[::-1]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    native.save(model, tmp_path / "converted")
    again = load_model(str(tmp_path / "converted"), device="cpu")
    np.testing.assert_array_equal(embed_audio(again, clips), embed_audio(model, clips))
    if kind == "m2d":
        texts = ["a dog", "rain"]
        np.testing.assert_array_equal(again.embed_text(texts), model.embed_text(texts))
        first = bert()(input_ids=torch.tensor([[2, 6, 3]])).last_hidden_state[:, 0]
        unit = torch.nn.functional.normalize(first, dim=-1).detach().numpy()
        np.testing.assert_allclose(model.embed_text(texts)[1:], unit, atol=1e-5)
    elif kind == "m2d_2024":
        with pytest.raises(ModelError, match="gte-base"):
            again.embed_text(["a dog"])
