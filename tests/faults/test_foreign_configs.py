"""Configs of other libraries that ask for too much: refused in a sentence, in little memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from loading import answers_of
from small_clap import save_small_clap
from transformers import ASTConfig, ASTModel, WhisperConfig, WhisperModel

CASES: list[tuple[str, tuple[str, ...], Any]] = [
    ("hf", ("audio_config", "patch_embeds_hidden_size"), 2**22),
    ("hf", ("audio_config", "depths"), [10**8, 2, 6, 2]),
    ("hf", ("audio_config", "window_size"), 10**6),
    ("hf", ("audio_config", "num_mel_bins"), -1),
    ("hf", ("audio_config", "spec_size"), 10**9),
    ("hf", ("text_config", "vocab_size"), 10**12),
    ("hf", ("text_config", "num_hidden_layers"), 10**8),
    ("hf", ("projection_dim",), 10**11),
    ("hf", ("audio_config",), "eight"),
    ("ast", ("hidden_size",), 2**24),
    ("ast", ("num_hidden_layers",), 10**9),
    ("ast", ("max_length",), 10**12),
    ("whisper", ("d_model",), 2**24),
    ("whisper", ("encoder_layers",), 10**9),
    ("whisper", ("max_source_positions",), 10**13),
]
UNREAD = {
    ("hf", ("audio_config", "patch_embeds_hidden_size")),
    ("hf", ("audio_config", "depths")),
    ("hf", ("audio_config", "window_size")),
    ("hf", ("audio_config", "num_mel_bins")),
    ("hf", ("projection_dim",)),
    ("ast", ("hidden_size",)),
    ("ast", ("max_length",)),
    ("whisper", ("d_model",)),
    ("whisper", ("max_source_positions",)),
}
"""Sizes that are taken from the weights themselves: what the config says of them does nothing."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    room = tmp_path_factory.mktemp("foreign")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ASTModel(ASTConfig(**small, intermediate_size=16)).save_pretrained(room / "ast")
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    WhisperModel(
        WhisperConfig(
            d_model=16, **layers, **heads, encoder_ffn_dim=16, decoder_ffn_dim=16, vocab_size=60_000
        )
    ).save_pretrained(room / "whisper")
    return {
        "hf": save_small_clap(room / "hf"),
        "ast": room / "ast",
        "whisper": room / "whisper",
    }


def test_foreign_configs_that_ask_for_too_much(folders: dict[str, Path], tmp_path: Path) -> None:
    names = [f"{family}:{folder}" for family, folder in folders.items()]
    for i, (family, where, value) in enumerate(CASES):
        copy = Path(shutil.copytree(folders[family], tmp_path / str(i)))
        config = json.loads((copy / "config.json").read_text())
        inner = config
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = value
        (copy / "config.json").write_text(json.dumps(config))
        names.append(f"{family}:{copy}")
    # none takes the memory that it asks for, none ends in a traceback; as they are they load
    found = answers_of(names)
    assert found[: len(folders)] == ["loaded"] * len(folders)
    answers = found[len(folders) :]
    loaded = {c[:2] for c, a in zip(CASES, answers, strict=True) if a == "loaded"}
    assert loaded <= UNREAD
