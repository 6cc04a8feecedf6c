"""Small M2D-CLAP checkpoints in the layouts of the releases, with random weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
)

NAME_2025 = "m2d_clap_vit_base-80x37p16x16p16kpBpTI-2025"
NAME_2024 = "m2d_clap_vit_base-80x37p16x16-240128"


def noise(module: torch.nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.5 if parameter.ndim < 2 else 0.0, 0.1)


def backbone(draw: torch.Generator) -> dict[str, Tensor]:
    """Upstream's tensors at width 24: 12 blocks, 12 heads, 37 frames."""

    def tensor(*shape: int) -> Tensor:
        return 0.2 * torch.randn(shape, generator=draw)

    state = {
        "cls_token": tensor(1, 1, 24),
        "pos_embed": tensor(1, 11, 24),
        "patch_embed.proj.weight": tensor(24, 1, 16, 16),
        "patch_embed.proj.bias": tensor(24),
        "norm.weight": 1 + tensor(24),
        "norm.bias": tensor(24),
    }
    for block in range(12):
        state |= {f"blocks.{block}.{k}": v for k, v in timm_block(tensor, 24, 48).items()}
    return state


def timm_block(tensor: Any, width: int, hidden: int) -> dict[str, Tensor]:
    sizes = {
        "attn.qkv": (3 * width, width),
        "attn.proj": (width, width),
        "mlp.fc1": (hidden, width),
        "mlp.fc2": (width, hidden),
    }
    found = {f"{name}.weight": tensor(*shape) for name, shape in sizes.items()}
    found |= {f"{name}.bias": tensor(shape[0]) for name, shape in sizes.items()}
    for name in ("norm1", "norm2"):
        found |= {f"{name}.weight": 1 + tensor(width), f"{name}.bias": tensor(width)}
    return found


def bert() -> BertModel:
    sizes = BertConfig(
        vocab_size=40,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    torch.manual_seed(1)
    return BertModel(sizes).eval()


def state_2024() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    head = {f"audio_proj.{i}.weight": torch.randn(24, 24, generator=draw) for i in (0, 2)}
    head |= {f"audio_proj.{i}.bias": torch.randn(24, generator=draw) for i in (0, 2)}
    return backbone(draw) | head


def state_2025() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)

    def tensor(*shape: int) -> Tensor:
        return 0.2 * torch.randn(shape, generator=draw)

    audio = backbone(draw) | {"norm_stats": torch.tensor([-6.0, 4.0])}
    audio |= {"audio_proj.sem_token": tensor(1, 1, 24)}
    audio |= {"audio_proj.norm.weight": 1 + tensor(24), "audio_proj.norm.bias": tensor(24)}
    block = timm_block(tensor, 24, 24)
    audio |= {f"audio_proj.sem_blocks.0.{key}": value for key, value in block.items()}
    text = {f"text_encoder.text_encoder.{k}": v for k, v in bert().state_dict().items()}
    return {f"backbone.{key}": value for key, value in audio.items()} | text


def put(root: Path, name: str, state: dict[str, Tensor], pickled: bool = False) -> Path:
    folder = root / name
    folder.mkdir()
    if pickled:
        arguments = argparse.Namespace(epochs=300, output_dir="x", lr=1e-4)
        checkpoint = {"model": state, "epoch": 300, "args": arguments}
        torch.save(checkpoint, folder / "checkpoint-300.pth")
    else:
        save_file({k: v.contiguous() for k, v in state.items()}, folder / "model.safetensors")
    return folder


def put_text(folder: Path) -> None:
    bert().save_pretrained(folder)


def put_tokenizer(folder: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "rain"]
    model = models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]")
    fast.save_pretrained(folder)
