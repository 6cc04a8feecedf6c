"""Low-rank updates of a CLAP's layers, written as an adapter that PEFT opens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.checkpoint_files import write_folder
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.hf import check_counterpart
from residual_audio.types import FloatArray, Site

ADAPTER = "adapter_model.safetensors"
OUTPUT: Final = "output"
Place = Site | Literal["output"]
"""A site's last layer, or the first layer of the joint head."""


@dataclass(frozen=True)
class LowRankUpdate:
    """W [width, inner] ← W + up down, b ← b + bias."""

    down: FloatArray
    """[rank, inner]"""
    up: FloatArray
    """[width, rank]"""
    bias: FloatArray
    """[width]"""

    @property
    def rank(self) -> int:
        return len(self.down)


def save_adapter(
    model: AudioTextModel, updates: Mapping[Place, LowRankUpdate], out: Path, base: str
) -> None:
    """A folder for `PeftModel.from_pretrained(ClapModel.from_pretrained(…), out)`."""
    check_counterpart(model)
    if not updates:
        raise InputError("nothing moved: there is no update to write as an adapter")
    named = {_module(place): update for place, update in updates.items()}
    with_bias = any(update.bias.any() for update in named.values())
    state: dict[str, Tensor] = {}
    for name, update in named.items():
        stem = f"base_model.model.{name}"
        state[f"{stem}.lora_A.weight"] = torch.from_numpy(update.down).float()
        state[f"{stem}.lora_B.weight"] = torch.from_numpy(update.up).float()
        if with_bias:
            state[f"{stem}.lora_B.bias"] = torch.from_numpy(update.bias).float()
    config = _config(base, {name: update.rank for name, update in named.items()}, with_bias)
    files = {"adapter_config.json": json.dumps(config, indent=2)}
    write_folder(out, state, files, weights=ADAPTER)


def _config(base: str, ranks: Mapping[str, int], with_bias: bool) -> dict[str, object]:
    """What PEFT reads; α equals the rank everywhere, so that nothing is scaled."""
    most = max(ranks.values())
    others = {name: rank for name, rank in ranks.items() if rank != most}
    return {
        "peft_type": "LORA",
        "task_type": "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "r": most,
        "lora_alpha": most,
        "rank_pattern": others,
        "alpha_pattern": others,
        "lora_dropout": 0.0,
        "lora_bias": with_bias,
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "target_modules": sorted(ranks),
    }


def _module(place: Place) -> str:
    """The name of the layer in transformers' ClapModel."""
    if isinstance(place, str):
        return "audio_projection.linear1"
    inside = "attention.output.dense" if place.kind == "attention" else "output.dense"
    return f"audio_model.audio_encoder.layers.{place.stage}.blocks.{place.block}.{inside}"
