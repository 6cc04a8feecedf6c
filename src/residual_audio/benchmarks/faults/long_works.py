"""Longer pieces of real work: training, and a whole run with its tables, gains, page and atlas."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch

from residual_audio.benchmarks.faults.works import Work, read_store, read_tables
from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.models.registry import load_model
from residual_audio.store.reader import open_store

CLASSES = "drum,siren,rain,heartbeat"
ENCODER = {
    "embed_dim": 8,
    "depths": [1, 1],
    "n_heads": [2, 2],
    "window": 4,
    "spec_size": 64,
    "n_mels": 64,
}


def _ablate(out: Path) -> None:
    from residual_audio.ablation.ablation import AblationSettings, ablate
    from residual_audio.ablation.interventions import interventions_on
    from residual_audio.report.write import write_tables

    torch.set_num_threads(1)
    data = load_dataset("synthetic", n_clips=8, classes=CLASSES)
    extract(load_model("nano"), data, out, capture="direct", n_threads=0, device="cpu")
    asked = AblationSettings(("attention",), curves=False)
    write_tables(out, ablate(interventions_on(open_store(out)), asked))


def _train(out: Path) -> None:
    """A model of a few thousand weights, six steps, a checkpoint every other one."""
    from residual_audio.training.recipe import Recipe
    from residual_audio.training.training import run_training

    torch.set_num_threads(1)
    optimisation = {
        "steps": 6,
        "batch_size": 4,
        "lr": 5e-3,
        "checkpoint_every": 2,
        "precision": "float32",
    }
    options = {"n_clips": 8, "classes": CLASSES}
    audio = {
        "encoder": ENCODER,
        "front_end": "nano",
        "front_end_options": {"n_samples": 32_000, "hop_length": 512},
        "head": "mlp",
        "d_hidden": 16,
        "data": [{"dataset": "synthetic", "options": options, "share": 1.0}],
        "text_lr": 1.0,
        "track": {"every": 3, "n_clips": 8},
        "optimisation": optimisation,
    }
    text = {"vocabulary": 300, "width": 16, "depth": 1, "n_heads": 2, "d_out": 8}
    recipe = {"name": "small", "seed": 3, "text": text, "audio": audio}
    run_training(Recipe.model_validate(recipe), out, out / "training", torch.device("cpu"))


def _read_training(out: Path) -> None:
    from residual_audio.models import native

    native.load(out / "training" / "model")


def _run(out: Path) -> None:
    """Every step of `run`, as small as it can be."""
    from residual_audio.pipeline.run import run
    from residual_audio.pipeline.run_settings import RunSettings

    torch.set_num_threads(1)
    os.environ["RESIDUAL_AUDIO_CACHE"] = str(out.parent / "cache")
    made = {"n_clips": 24, "classes": CLASSES, "seed": 90_001}
    asked = RunSettings("nano", "synthetic", out, data_options=made, quick=True, n_exact=0)
    run(replace(asked, n_previews=4, n_folds=2))


LONG_WORKS = (
    Work("ablate", _ablate, read_tables),
    Work("train", _train, _read_training),
    Work("run", _run, read_store),
)
