"""Audio–text models with an encoder of one stage (AST, M2D, Whisper): small, random weights."""

from __future__ import annotations

from pathlib import Path

import torch

from residual_audio.audio import specs
from residual_audio.models import native
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.frontends import build_front_end
from residual_audio.models.joint import MLP
from residual_audio.models.text_small import SmallText, SmallTextConfig, train_bpe
from residual_audio.models.vit import ViT, ViTConfig

N_BLOCKS, N_HEADS = 3, 4
SHAPES = {
    "ast": {"n_special": 2, "pool": "special"},
    "m2d": {"n_special": 1, "pool": "stack", "chunks": True},
    "whisper": {"stem": "conv"},
}


def one_stage_model(kind: str) -> AudioTextModel:
    torch.manual_seed(0)
    tokenizer = train_bpe(["a dog barks", "rain on a roof", "this is a sound of a bell"], 300)
    config = ViTConfig(
        width=32,
        depth=N_BLOCKS,
        n_heads=N_HEADS,
        hidden=48,
        n_mels=specs.NANO.n_mels,
        n_frames=251,
        norm_eps=1e-6,
        patch=(16, 32),
        stride=(16, 32),
        **SHAPES[kind],
    )
    text = SmallTextConfig(tokenizer.get_vocab_size(), width=16, depth=1, n_heads=2, d_out=24)
    return AudioTextModel(
        name=kind,
        family="native",
        front_end=build_front_end(specs.NANO),
        encoder=ViT(config),
        head=MLP(config.latent, 32, 24),
        text=SmallText(text, tokenizer),
        logit_scale=20.0,
        sha256="0" * 64,
    )


def save_one_stage(folder: Path, kind: str) -> Path:
    """As a folder that `load_model` opens."""
    native.save(one_stage_model(kind), folder)
    return folder
