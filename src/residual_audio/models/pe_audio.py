"""Meta's PE-Audio, and the audio and text sides of PE-AV: folders of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from residual_audio.audio.codec_spec import CodecSpec
from residual_audio.audio.frontend import FrontEndSpec
from residual_audio.errors import ModelError
from residual_audio.models.checkpoint_files import read_model_json, said_type
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.codec import CodecFrames
from residual_audio.models.hf import find_folder, read_folder_weights
from residual_audio.models.joint import NormLinear
from residual_audio.models.rotary import Rotary, RotaryConfig
from residual_audio.models.text import TokenizerSpec, TransformersText
from residual_audio.models.weights import StateDict, below, get, load_strict

WINDOW_S = 10
"""Clips are read whole; only windows that are asked for (`center`, `tile`) have this length."""
START_SCALE = 10.0
"""Where the learned scale is not there, or 0, as before training."""

_AUDIO = {"n_heads": 14, "d_head": 128, "norm_eps": 1e-5, "theta": 20_000.0}
_TEXT = {
    "hidden_size": 1024,
    "intermediate_size": 2624,
    "num_hidden_layers": 22,
    "num_attention_heads": 16,
}
"""As transformers has them, where a config does not say."""
_BLOCK = {
    "input_layernorm": "norm1",
    "self_attn.q_norm": "q_norm",
    "self_attn.k_norm": "k_norm",
    "self_attn.o_proj": "proj",
    "post_attention_layernorm": "norm2",
    "mlp.down_proj": "fc2",
}
_STEM = {
    "embedder.data_proj.": "stem.data_proj.",
    "patch_embedder.class_embedding": "stem.special",
    "patch_embedder.resnet_block.block1.groupnorm.": "stem.norm1.",
    "patch_embedder.resnet_block.block1.project.": "stem.conv1.",
    "patch_embedder.resnet_block.block2.groupnorm.": "stem.norm2.",
    "patch_embedder.resnet_block.block2.project.": "stem.conv2.",
}


def load(ref: str) -> AudioTextModel:
    """`ref` is a folder or a repository id such as `facebook/pe-av-small`."""
    folder = find_folder(ref, "pe-audio")
    config = read_model_json(folder / "config.json")
    audio = _audio_config(config, ref)
    state, sha256 = read_folder_weights(folder, ("audio_model.", ""))
    where = f"'{ref}'"
    heard = below(state, "audio_encoder.")
    encoder = _encoder(heard, audio, where)
    return AudioTextModel(
        name=f"pe-audio:{ref}",
        family="pe-audio",
        front_end=_front_end(below(heard, "embedder."), folder, where),
        encoder=encoder,
        head=_head(below(state, "audio_head."), f"the audio head of {where}"),
        text=_text(state, config.get("text_config") or {}, folder, where),
        logit_scale=_scale(state),
        sha256=sha256,
    )


def _audio_config(config: Mapping[str, Any], ref: str) -> Mapping[str, Any]:
    kind = config.get("model_type")
    if kind not in ("pe_audio", "pe_audio_video"):
        raise ModelError(f"'{ref}' {said_type(config)}, not PE-Audio (pe_audio, pe_audio_video)")
    if "PeAudioFrameLevelModel" in (config.get("architectures") or ()):
        raise ModelError(
            f"'{ref}' embeds every frame by itself (PeAudioFrameLevelModel): it has no embedding "
            "of a clip to look into"
        )
    inner = config if kind == "pe_audio" else config.get("audio_video_config") or {}
    audio = inner.get("audio_config") or {}
    rope = audio.get("rope_parameters") or {}
    for name, said, known in (
        ("activation", audio.get("hidden_act", "silu"), "silu"),
        ("rotary positions", rope.get("rope_type", "default"), "default"),
    ):
        if said != known:
            raise ModelError(f"'{ref}' has the {name} '{said}'; only {known} is known")
    return audio


def _encoder(state: StateDict, audio: Mapping[str, Any], where: str) -> Rotary:
    rope = audio.get("rope_parameters") or {}
    n_heads = int(audio.get("num_attention_heads") or _AUDIO["n_heads"])
    d_head = int(audio.get("head_dim") or _AUDIO["d_head"])
    ours = _named(state, n_heads, d_head, where)
    width, n_features = get(ours, "stem.data_proj.weight", where).shape
    encoder = Rotary(
        RotaryConfig(
            width=width,
            depth=len({key.split(".")[1] for key in ours if key.startswith("blocks.")}),
            n_heads=n_heads,
            d_head=d_head,
            hidden=get(ours, "blocks.0.fc2.weight", where).shape[1],
            n_features=n_features,
            norm_eps=float(audio.get("rms_norm_eps") or _AUDIO["norm_eps"]),
            theta=float(rope.get("rope_theta") or audio.get("rope_theta") or _AUDIO["theta"]),
        )
    )
    load_strict(encoder, ours, f"the audio encoder of {where}")
    return encoder


def _named(state: StateDict, n_heads: int, d_head: int, where: str) -> StateDict:
    """Their names → ours: queries, keys and values in one matrix, gate and what it gates too."""
    found: StateDict = {}
    blocks: dict[str, StateDict] = {}
    for key, value in state.items():
        match = re.fullmatch(r"layers\.(\d+)\.(.+)\.(weight|bias)", key)
        if match:
            blocks.setdefault(match[1], {})[f"{match[2]}.{match[3]}"] = value
            continue
        prefix = next((name for name in _STEM if key.startswith(name)), None)
        if prefix is not None:
            found[_STEM[prefix] + key.removeprefix(prefix)] = value
        elif not key.startswith(("embedder.", "rotary_emb.")):
            found[key] = value
    for index, tensors in blocks.items():
        for name, value in _block(tensors, n_heads, d_head, f"block {index} of {where}").items():
            found[f"blocks.{index}.{name}"] = value
    return found


def _block(state: StateDict, n_heads: int, d_head: int, where: str) -> StateDict:
    ours: StateDict = {}
    for kind in ("weight", "bias"):
        parts = [_of_every_head(state, name, kind, n_heads, d_head, where) for name in "qkv"]
        ours[f"qkv.{kind}"] = torch.cat(parts)
    gates = [get(state, f"mlp.{name}_proj.weight", where) for name in ("gate", "up")]
    ours["fc1.weight"] = torch.cat(gates)
    for theirs, name in _BLOCK.items():
        ours[f"{name}.weight"] = get(state, f"{theirs}.weight", where)
    width = len(ours["proj.weight"])
    # Nothing is added to what a site gives, so that gains have a place to put their means.
    ours["proj.bias"] = state.get("self_attn.o_proj.bias", torch.zeros(width))
    ours["fc1.bias"] = torch.zeros(len(ours["fc1.weight"]))
    ours["fc2.bias"] = torch.zeros(width)
    return ours


def _of_every_head(
    state: StateDict, name: str, kind: str, n_heads: int, d_head: int, where: str
) -> Tensor:
    """Keys and values that several heads share stand once for each of them."""
    weight = get(state, f"self_attn.{name}_proj.weight", where)
    found = weight if kind == "weight" else state.get(f"self_attn.{name}_proj.bias")
    if found is None:
        found = torch.zeros(len(weight))
    rows = found.unflatten(0, (-1, d_head))
    if n_heads % len(rows):
        raise ModelError(f"{where} has {len(rows)} × {d_head} rows of {name} for {n_heads} heads")
    return rows.repeat_interleave(n_heads // len(rows), 0).flatten(0, 1)


def _front_end(state: StateDict, folder: Path, where: str) -> CodecFrames:
    """Sizes are those of the tensors: a block's last convolution spans two of its strides."""
    tensors = {key: value for key, value in state.items() if not key.startswith("data_proj.")}
    place = f"the codec of {where}"
    n_blocks = len({key.split(".")[2] for key in tensors if key.startswith("dac_encoder.block.")})
    last = [get(tensors, f"dac_encoder.block.{i}.conv1.weight", place) for i in range(n_blocks)]
    codec = CodecSpec(
        width=len(get(tensors, "dac_encoder.conv1.weight", place)),
        strides=tuple(weight.shape[2] // 2 for weight in last),
        hidden=len(get(tensors, "dac_encoder.conv2.weight", place)),
    )
    path = folder / "preprocessor_config.json"
    said = read_model_json(path) if path.is_file() else {}
    rate = int(said.get("sampling_rate", 48_000))
    if int(said.get("hop_length", codec.hop_length)) != codec.hop_length:
        raise ModelError(
            f"'{path}' says a hop of {said['hop_length']}, the codec's is {codec.hop_length}"
        )
    spec = FrontEndSpec(
        sample_rate_hz=rate,
        n_samples=WINDOW_S * rate,
        n_fft=codec.hop_length,
        hop_length=codec.hop_length,
        n_mels=len(get(tensors, "bottleneck.weight", place)),
        f_min_hz=0.0,
        f_max_hz=rate / 2,
        center=False,
        short="keep",
        codec=codec,
    )
    front_end = CodecFrames(spec)
    load_strict(front_end, tensors, place)
    return front_end


def _head(state: StateDict, where: str) -> NormLinear:
    weight = get(state, "proj.weight", where)
    head = NormLinear(weight.shape[1], weight.shape[0])
    named = {key.replace("proj.", "linear."): value for key, value in state.items()}
    load_strict(head, named, where)
    return head


def _text(
    state: StateDict, config: Mapping[str, Any], folder: Path, where: str
) -> TransformersText:
    tensors = below(state, "text_model.")
    if not tensors:  # PE-AV keeps the text side that its parts share outside of them
        tensors, _ = read_folder_weights(folder, ("text_model.",))
    kind = config.get("model_type", "modernbert")
    if kind != "modernbert":
        raise ModelError(f"the text side of {where} is '{kind}'; only modernbert is known")
    known = {key: value for key, value in config.items() if not key.startswith("_")}
    text = TransformersText(
        "modernbert",
        {**_TEXT, **known},
        "first",
        _head(below(state, "text_audio_head."), f"the text head of {where}"),
        TokenizerSpec(str(folder), padding="longest", max_length=512),
    )
    load_strict(text.backbone, tensors, f"the text side of {where}", ignore=("rotary_emb",))
    return text


def _scale(state: StateDict) -> float:
    """Upstream multiplies products of vectors of any length by it; here they have unit length."""
    learned = float(state.get("text_audio_logit_scale", torch.zeros(1)))
    return learned if learned > 0 else START_SCALE
