"""Names of HTS-AT tensors: ours, the upstream code's (LAION, Microsoft, MGA) and transformers'."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from residual_audio.errors import ModelError
from residual_audio.models.htsat import HTSATConfig
from residual_audio.models.weights import StateDict, get

# ours ↔ upstream ↔ transformers, inside one block
_BLOCK = (
    ("norm1", "norm1", "layernorm_before"),
    ("qkv", "attn.qkv", "attention.self.qkv"),
    (
        "bias_table",
        "attn.relative_position_bias_table",
        "attention.self.relative_position_bias_table",
    ),
    ("proj", "attn.proj", "attention.output.dense"),
    ("norm2", "norm2", "layernorm_after"),
    ("fc1", "mlp.fc1", "intermediate.dense"),
    ("fc2", "mlp.fc2", "output.dense"),
)
# ours ↔ upstream ↔ transformers, outside blocks
_TOP = (
    ("mel_norm", "bn0", "batch_norm"),
    ("patch", "patch_embed.proj", "patch_embed.proj"),
    ("patch_norm", "patch_embed.norm", "patch_embed.norm"),
    ("fusion.mel_conv2d", "patch_embed.mel_conv2d", "patch_embed.mel_conv2d"),
    (
        "fusion.local_att",
        "patch_embed.fusion_model.local_att",
        "patch_embed.fusion_model.local_att",
    ),
    (
        "fusion.global_att",
        "patch_embed.fusion_model.global_att",
        "patch_embed.fusion_model.global_att",
    ),
    ("norm", "norm", "norm"),
)
IGNORED = (
    "relative_position_index",
    "attn_mask",
    "spectrogram_extractor.",
    "logmel_extractor.",
    "audio_feats_extractor.",
    "tscam_conv.",
    "spec_augmenter.",
)
"""Fixed functions of the geometry, the front-end (read apart) and the tagging head."""
_PARTS = ("query", "key", "value")


def from_upstream(state: Mapping[str, Tensor]) -> StateDict:
    """Upstream names → ours."""
    return _rename(state, 1)


def from_transformers(state: Mapping[str, Tensor]) -> StateDict:
    """transformers' names → ours; query, key and value become one qkv."""
    joined: StateDict = {}
    for key, value in state.items():
        found = re.fullmatch(r"(.*\.attention\.self\.)(query|key|value)\.(weight|bias)", key)
        if found is None:
            joined[key] = value
            continue
        stem, part, what = found.groups()
        name = f"{stem}qkv.{what}"
        if part == "query" and name not in joined:
            thirds = [get(state, f"{stem}{p}.{what}", "the checkpoint") for p in _PARTS]
            joined[name] = torch.cat(thirds)
    return _rename(joined, 2)


def _rename(state: Mapping[str, Tensor], column: int) -> StateDict:
    renamed: StateDict = {}
    for key, value in state.items():
        if any(part in key for part in IGNORED) or key.startswith("head."):
            continue
        renamed[_to_ours(key, column)] = value
    return renamed


def _to_ours(key: str, column: int) -> str:
    block = re.fullmatch(r"layers\.(\d+)\.blocks\.(\d+)\.(.+)", key)
    if block is not None:
        stage, index, rest = block.groups()
        return f"stages.{stage}.{index}.{_swap(rest, _BLOCK, column, 0)}"
    merge = re.fullmatch(r"layers\.(\d+)\.downsample\.(.+)", key)
    if merge is not None:
        return f"merges.{merge[1]}.{merge[2]}"
    return _swap(key, _TOP, column, 0)


def to_upstream(state: Mapping[str, Tensor]) -> StateDict:
    """Our names → upstream's (without the tensors that are fixed functions of the geometry)."""
    return {_from_ours(key, 1): value for key, value in state.items()}


def to_transformers(state: Mapping[str, Tensor]) -> StateDict:
    """Our names → transformers'."""
    split: StateDict = {}
    for key, value in state.items():
        name = _from_ours(key, 2)
        if ".attention.self.qkv." in name:
            for part, third in zip(_PARTS, value.chunk(3), strict=True):
                split[name.replace(".qkv.", f".{part}.")] = third.contiguous()
        else:
            split[name] = value
    return split


def _from_ours(key: str, column: int) -> str:
    block = re.fullmatch(r"stages\.(\d+)\.(\d+)\.(.+)", key)
    if block is not None:
        stage, index, rest = block.groups()
        return f"layers.{stage}.blocks.{index}.{_swap(rest, _BLOCK, 0, column)}"
    merge = re.fullmatch(r"merges\.(\d+)\.(.+)", key)
    if merge is not None:
        return f"layers.{merge[1]}.downsample.{merge[2]}"
    return _swap(key, _TOP, 0, column)


def _swap(key: str, names: tuple[tuple[str, str, str], ...], old: int, new: int) -> str:
    for row in names:
        if key == row[old] or key.startswith(row[old] + "."):
            return row[new] + key[len(row[old]) :]
    return key


def read_config(state: Mapping[str, Tensor], where: str, **fixed: object) -> HTSATConfig:
    """The size of the encoder, read off the shapes of its tensors (our names)."""
    patch = get(state, "patch.weight", where)
    depths: list[int] = []
    for key in state:
        found = re.match(r"stages\.(\d+)\.(\d+)\.qkv\.weight", key)
        if found is not None:
            stage, block = int(found[1]), int(found[2])
            depths += [0] * (stage + 1 - len(depths))
            depths[stage] = max(depths[stage], block + 1)
    if not depths or 0 in depths:
        raise ModelError(f"{where} has no HTS-AT blocks: is it a checkpoint of another family?")
    tables = [get(state, f"stages.{s}.0.bias_table", where) for s in range(len(depths))]
    hidden, width = get(state, "stages.0.0.fc1.weight", where).shape
    return HTSATConfig(
        embed_dim=patch.shape[0],
        depths=tuple(depths),
        n_heads=tuple(table.shape[1] for table in tables),
        window=(math.isqrt(tables[0].shape[0]) + 1) // 2,
        patch=patch.shape[2],
        n_mels=get(state, "mel_norm.weight", where).shape[0],
        mlp_ratio=hidden / width,
        fusion="fusion.mel_conv2d.weight" in state,
        **fixed,  # type: ignore[arg-type]
    )
