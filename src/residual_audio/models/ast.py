"""Audio Spectrogram Transformer folders of transformers: an audio-only encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json, said_type
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.hf import find_folder, read_folder_weights
from residual_audio.models.joint import Identity
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.models.vit_names import read_blocks
from residual_audio.models.weights import StateDict, get, load_strict

_QKV = (
    "attention.attention.query",
    "attention.attention.key",
    "attention.attention.value",
)
_BLOCK = {
    "layernorm_before": "norm1",
    "attention.output.dense": "proj",
    "layernorm_after": "norm2",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
}
_PREFIX = "audio_spectrogram_transformer."
_IGNORED = "classifier."
"""The tagging head of `ASTForAudioClassification`; the latent is what it reads."""


def load(ref: str) -> AudioTextModel:
    """`ref` is a folder or a repository id; `ASTModel` and `ASTForAudioClassification` alike."""
    folder = find_folder(ref, "ast")
    config = read_model_json(folder / "config.json")
    if config.get("model_type") != "audio-spectrogram-transformer":
        raise ModelError(f"'{ref}' {said_type(config)}, not an Audio Spectrogram Transformer")
    if config.get("hidden_act", "gelu") != "gelu":
        raise ModelError(f"'{ref}' has the activation '{config['hidden_act']}'; only gelu is known")
    tensors, sha256 = read_folder_weights(folder)
    encoder = _encoder(tensors, config, f"'{ref}'")
    spec = front_end_spec(folder, encoder.config)
    return AudioTextModel(
        name=f"ast:{ref}",
        family="ast",
        front_end=build_front_end(spec),
        encoder=encoder,
        head=Identity(encoder.config.latent),
        text=None,
        logit_scale=1.0,
        sha256=sha256,
    )


def _encoder(tensors: StateDict, config: dict[str, Any], where: str) -> ViT:
    state = read_blocks(
        {
            key.removeprefix(_PREFIX): value
            for key, value in tensors.items()
            if not key.startswith(_IGNORED)
        },
        "encoder.layer.",
        _BLOCK,
        _QKV,
        where,
        without_bias=() if config.get("qkv_bias", True) else _QKV,
    )
    special = [get(state, f"embeddings.{name}_token", where) for name in ("cls", "distillation")]
    get(state, "embeddings.position_embeddings", where)
    state = {
        key.replace("embeddings.patch_embeddings.projection.", "stem.conv.")
        .replace("embeddings.position_embeddings", "positions")
        .replace("layernorm.", "norm."): value
        for key, value in state.items()
        if key not in ("embeddings.cls_token", "embeddings.distillation_token")
    }
    state["special"] = torch.cat(special, 1)[0]
    state["positions"] = state["positions"][0]
    size = int(config.get("patch_size", 16))
    encoder = ViT(
        ViTConfig(
            width=int(config.get("hidden_size", 768)),
            depth=int(config.get("num_hidden_layers", 12)),
            n_heads=int(config.get("num_attention_heads", 12)),
            hidden=int(config.get("intermediate_size", 3072)),
            n_mels=int(config.get("num_mel_bins", 128)),
            n_frames=int(config.get("max_length", 1024)),
            norm_eps=float(config.get("layer_norm_eps", 1e-12)),
            patch=(size, size),
            stride=(int(config.get("frequency_stride", 10)), int(config.get("time_stride", 10))),
            n_special=2,
            pool="special",
        )
    )
    load_strict(encoder, state, where)
    return encoder


def front_end_spec(folder: Path, encoder: ViTConfig) -> FrontEndSpec:
    """What preprocessor_config.json says; the released values where there is none."""
    path = folder / "preprocessor_config.json"
    config = read_model_json(path) if path.is_file() else {}
    rate = int(config.get("sampling_rate", specs.AST.sample_rate_hz))
    n_mels = int(config.get("num_mel_bins", encoder.n_mels))
    n_frames = int(config.get("max_length", encoder.n_frames))
    if (n_mels, n_frames) != (encoder.n_mels, encoder.n_frames):
        raise ModelError(
            f"'{path}' makes {n_frames} frames of {n_mels} mels, the encoder takes "
            f"{encoder.n_frames} of {encoder.n_mels}"
        )
    normalise = bool(config.get("do_normalize", True))
    assert specs.AST.mean is not None
    assert specs.AST.std is not None
    return replace(
        specs.AST,
        sample_rate_hz=rate,
        f_max_hz=float(rate // 2),
        n_mels=n_mels,
        n_frames=n_frames,
        n_samples=specs.AST.frame_length + (n_frames - 1) * specs.AST.hop_length,
        mean=float(config.get("mean", specs.AST.mean)) if normalise else None,
        # AST divides by twice the standard deviation.
        std=2 * float(config.get("std", specs.AST.std / 2)) if normalise else None,
    )
