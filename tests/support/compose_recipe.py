"""A small recipe that teaches composition, its run made once, and its task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from residual_audio.models.weights import read_safetensors
from residual_audio.training.compose_stage import ComposeTask, load_tower_of, weights_of
from residual_audio.training.pair_data import load_pairs
from residual_audio.training.recipe import Recipe
from residual_audio.training.training import run_training
from residual_audio.training.training_clips import front_end_spec, load_clips

STEPS = 6
PAIRS = [
    {"dataset": "synthetic", "options": {"n_clips": 8, "kind": "order", "seed": 2}},
    {"dataset": "synthetic", "options": {"n_clips": 8, "kind": "attribute", "seed": 3}},
]


def tiny_recipe(**compose: Any) -> Recipe:
    """An HTS-AT of a few thousand weights on a few synthetic clips and pairs."""
    optimisation = {
        "steps": STEPS,
        "batch_size": 4,
        "lr": 5e-3,
        "ema": 0.5,
        "checkpoint_every": 3,
        "precision": "float32",
    }
    audio = {
        "encoder": {
            "embed_dim": 8,
            "depths": [1, 1],
            "n_heads": [2, 2],
            "window": 4,
            "spec_size": 64,
            "n_mels": 64,
        },
        "front_end": "tiny",
        "d_hidden": 16,
        "data": [{"dataset": "synthetic", "options": {"n_clips": 8, "classes": "drum,rain"}}],
        "track": {"every": 3, "n_clips": 8},
        "optimisation": optimisation | {"steps": 2},
    }
    text = {"vocabulary": 300, "width": 16, "depth": 1, "n_heads": 2, "d_out": 8}
    stage = {
        "data": PAIRS,
        "validation": PAIRS[:1],
        "items": 3,
        "optimisation": optimisation,
    }
    return Recipe.model_validate(
        {"name": "tiny", "seed": 3, "text": text, "audio": audio, "compose": stage | compose}
    )


def run(recipe: Recipe, out: Path, stage: str = "all", stop_after: int | None = None) -> Path:
    return run_training(
        recipe, Path(), out, torch.device("cpu"), stage=stage, stop_after=stop_after
    )


def trained(out: Path) -> Path:
    """The uninterrupted run, made once."""
    if not (out / "model").is_dir():
        assert run(tiny_recipe(), out).name == "model"
    return out


def task_of(recipe: Recipe, out: Path) -> ComposeTask:
    assert recipe.compose is not None
    clips = load_clips(recipe.audio, Path(), out / "cache", recipe.seed)
    pairs = load_pairs(
        recipe.compose.data,
        front_end_spec(recipe.audio),
        Path(),
        out / "cache",
        told=recipe.compose.told,
    )
    plain = out / "plain"
    task = ComposeTask(recipe, recipe.compose, clips, pairs, None, load_tower_of(plain))
    weights = weights_of(plain, task.module, clips)
    task.start_from(weights, weights)
    return task


def state(out: Path) -> dict[str, Tensor]:
    return read_safetensors(out / "compose" / "checkpoint.safetensors")
