"""A CLAP of transformers, small enough for tests: random weights, real topology."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import ClapConfig, ClapFeatureExtractor, ClapModel


def small_clap(fusion: bool = False) -> ClapModel:
    torch.manual_seed(0)
    config = ClapConfig(
        projection_dim=24,
        text_config={
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "vocab_size": 100,
            "projection_dim": 24,
        },
        audio_config={
            "patch_embeds_hidden_size": 8,
            "hidden_size": 64,
            "projection_dim": 24,
            "enable_fusion": fusion,
            "fusion_type": "aff_2d" if fusion else None,
        },
    )
    model = ClapModel(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0 if parameter.ndim > 1 else 0.5, 0.1)
    return model


def save_small_clap(folder: Path) -> Path:
    """As a folder that transformers and we open."""
    small_clap().save_pretrained(folder)
    ClapFeatureExtractor(
        truncation="rand_trunc", padding="repeatpad", frequency_min=50, frequency_max=14000
    ).save_pretrained(folder)
    return folder
