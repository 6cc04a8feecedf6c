"""Whisper folders of transformers: the encoder alone, its latent the mean over all positions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from residual_audio.audio import specs
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.hf import find_folder, read_folder_weights
from residual_audio.models.joint import Identity
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.models.vit_names import read_blocks
from residual_audio.models.weights import StateDict, load_strict

_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_BLOCK = {
    "self_attn_layer_norm": "norm1",
    "self_attn.out_proj": "proj",
    "final_layer_norm": "norm2",
    "fc1": "fc1",
    "fc2": "fc2",
}
_OTHER = {
    "conv1.": "stem.conv1.",
    "conv2.": "stem.conv2.",
    "embed_positions.weight": "positions",
    "layer_norm.": "norm.",
}
_SIZES = ("d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim")
_IGNORED = ("decoder.", "proj_out.", "projector.", "classifier.", "layer_weights")
"""Decoder and the heads of fine-tuned classifiers."""


def load(ref: str) -> AudioTextModel:
    """`ref` is a folder or a repository id such as `openai/whisper-tiny`."""
    folder = find_folder(ref)
    config = read_model_json(folder / "config.json")
    if config.get("model_type") != "whisper":
        raise ModelError(f"'{ref}' is a '{config.get('model_type')}' model, not Whisper")
    if config.get("activation_function", "gelu") != "gelu":
        raise ModelError(
            f"'{ref}' has the activation '{config['activation_function']}'; only gelu is known"
        )
    missing = [key for key in _SIZES if key not in config]
    if missing:
        raise ModelError(f"'{folder / 'config.json'}' lacks {', '.join(missing)}")
    tensors, sha256 = read_folder_weights(folder)
    encoder = _encoder(tensors, config, f"'{ref}'")
    return AudioTextModel(
        name=f"whisper:{ref}",
        family="whisper",
        front_end=build_front_end(front_end_spec(folder, encoder.config)),
        encoder=encoder,
        head=Identity(encoder.config.latent),
        text=None,
        logit_scale=1.0,
        sha256=sha256,
    )


def _encoder(tensors: StateDict, config: dict[str, Any], where: str) -> ViT:
    state: StateDict = {}
    for key, value in tensors.items():
        name = key.removeprefix("model.")
        if not name.startswith(_IGNORED):
            state[name.removeprefix("encoder.")] = value
    # Whisper's keys have no bias: it would shift all scores of a query alike.
    state = read_blocks(state, "layers.", _BLOCK, _QKV, where, without_bias=_QKV[1:2])
    for theirs, ours in _OTHER.items():
        for key in [key for key in state if key.startswith(theirs)]:
            state[ours + key.removeprefix(theirs)] = state.pop(key)
    encoder = ViT(
        ViTConfig(
            width=int(config["d_model"]),
            depth=int(config["encoder_layers"]),
            n_heads=int(config["encoder_attention_heads"]),
            hidden=int(config["encoder_ffn_dim"]),
            n_mels=int(config.get("num_mel_bins", 80)),
            n_frames=2 * int(config.get("max_source_positions", 1500)),
            norm_eps=1e-5,
            stem="conv",
            patch=(1, 1),
            stride=(1, 1),
        )
    )
    load_strict(encoder, state, where)
    return encoder


def front_end_spec(folder: Path, encoder: ViTConfig) -> FrontEndSpec:
    """What preprocessor_config.json says; the released values where there is none."""
    path = folder / "preprocessor_config.json"
    config = read_model_json(path) if path.is_file() else {}
    spec = specs.WHISPER
    rate = int(config.get("sampling_rate", spec.sample_rate_hz))
    hop = int(config.get("hop_length", spec.hop_length))
    n_samples = encoder.n_frames * hop
    if "chunk_length" in config:
        n_samples = int(config["chunk_length"] * rate)
    spec = replace(
        spec,
        sample_rate_hz=rate,
        n_samples=n_samples,
        n_fft=int(config.get("n_fft", spec.n_fft)),
        hop_length=hop,
        n_mels=int(config.get("feature_size", encoder.n_mels)),
    )
    n_frames = spec.count_frames(spec.n_samples)
    if (spec.n_mels, n_frames) != (encoder.n_mels, encoder.n_frames):
        raise ModelError(
            f"'{path}' makes {n_frames} frames of {spec.n_mels} mels, the encoder takes "
            f"{encoder.n_frames} of {encoder.n_mels}"
        )
    return spec
