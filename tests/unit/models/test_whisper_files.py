"""Whisper's encoder in OpenAI's own files and inside audio language models: transformers as the
oracle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from m2d_checkpoints import noise
from transformers import (
    AudioFlamingo3Config,
    AudioFlamingo3ForConditionalGeneration,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    WhisperConfig,
    WhisperModel,
)

from residual_audio.errors import ModelError
from residual_audio.models import native, whisper

ENCODER = {
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "num_mel_bins": 80,
    "max_source_positions": 1500,
}
FLAMINGO = {
    "encoder_layers": "num_hidden_layers",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_ffn_dim": "intermediate_size",
    "d_model": "hidden_size",
}
TEXT = {
    "model_type": "qwen2", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip
OPENAI = (
    ("layers.", "blocks."),
    ("self_attn.q_proj", "attn.query"),
    ("self_attn.k_proj", "attn.key"),
    ("self_attn.v_proj", "attn.value"),
    ("self_attn.out_proj", "attn.out"),
    ("self_attn_layer_norm", "attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("embed_positions.weight", "positional_embedding"),
    (r"^layer_norm", "ln_post"),
)


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    return torch.randn(1, 80, 3000, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def theirs() -> WhisperModel:
    model = WhisperModel(
        WhisperConfig(
            **ENCODER,
            decoder_layers=1,
            decoder_attention_heads=4,
            decoder_ffn_dim=16,
            vocab_size=50,
            max_target_positions=8,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
    ).eval()
    noise(model)
    return model


def openai_file(model: WhisperModel, path: Path, **dims: int) -> Path:
    state = {}
    for key, value in model.encoder.state_dict().items():
        for ours, openai in OPENAI:
            key = re.sub(ours, openai, key)
        state[f"encoder.{key}"] = value
    state["decoder.ln.weight"] = torch.ones(32)
    sizes = {
        "n_mels": 80, "n_audio_ctx": 1500, "n_audio_state": 32, "n_audio_head": 4,
        "n_audio_layer": 2, "n_vocab": 50, **dims,
    }  # fmt: skip
    torch.save({"dims": sizes, "model_state_dict": state}, path)
    return path


def test_openai_file_is_transformers_encoder(
    theirs: WhisperModel, features: torch.Tensor, tmp_path: Path
) -> None:
    model = whisper.load(str(openai_file(theirs, tmp_path / "tiny.pt")))
    with torch.inference_mode():
        wanted = theirs.encoder(features).last_hidden_state
        ours = model.encode(features.transpose(1, 2))
    torch.testing.assert_close(ours.tokens, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.latent, wanted.mean(1), atol=1e-5, rtol=0)


def test_openai_file_refused(theirs: WhisperModel, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="its tensors"):
        whisper.load(str(openai_file(theirs, tmp_path / "a.pt", n_audio_layer=3)))
    torch.save({"state_dict": {}}, tmp_path / "b.pt")
    with pytest.raises(ModelError, match="no Whisper file of OpenAI"):
        whisper.load(str(tmp_path / "b.pt"))
    torch.save({"dims": {"n_mels": 80}, "model_state_dict": {}}, tmp_path / "c.pt")
    with pytest.raises(ModelError, match="n_audio_ctx"):
        whisper.load(str(tmp_path / "c.pt"))
    torch.save({"dims": Path("x"), "model_state_dict": {}}, tmp_path / "d.pt")
    with pytest.raises(ModelError, match="nothing in it was executed"):
        whisper.load(str(tmp_path / "d.pt"))
    with pytest.raises(ModelError, match="no file"):
        whisper.load(str(tmp_path / "absent.pt"))


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    ("config", "kind", "encoder_type"),
    [
        (Qwen2AudioConfig, Qwen2AudioForConditionalGeneration, "qwen2_audio_encoder"),
        (AudioFlamingo3Config, AudioFlamingo3ForConditionalGeneration, "audioflamingo3_encoder"),
    ],
)
def test_encoder_of_an_audio_language_model(
    config: type, kind: type, encoder_type: str, sharded: bool, features: torch.Tensor,
    tmp_path: Path,
) -> None:  # fmt: skip
    audio = {"model_type": encoder_type, **ENCODER}
    if "flamingo" in encoder_type:
        audio = {FLAMINGO.get(key, key): value for key, value in audio.items()}
    theirs = kind(config(audio_config=audio, text_config=TEXT)).eval()
    noise(theirs)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB" if sharded else "1GB")
    model = whisper.load(str(tmp_path))
    tower = theirs.model.audio_tower
    whole = {"input_features_mask": torch.ones(1, 3000)} if "flamingo" in encoder_type else {}
    with torch.inference_mode():
        wanted = tower(features, **whole).last_hidden_state
        ours = model.encode(features.transpose(1, 2))
    assert ours.tokens.shape == (1, 750, 32)
    torch.testing.assert_close(ours.tokens, wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.latent, wanted.mean(1), atol=1e-5, rtol=0)
    if not sharded:
        native.save(model, tmp_path / "native")
        again = native.load(tmp_path / "native").encode(features.transpose(1, 2))
        torch.testing.assert_close(again.latent, ours.latent)
