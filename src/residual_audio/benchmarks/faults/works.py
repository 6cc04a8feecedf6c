"""Small pieces of real work that write files: what the campaigns crash and damage.

Every step of a run is one, on a model of four heads that was trained for six steps: as `run` does
it, from the files of the steps before, which are made once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from residual_audio.benchmarks.faults.grounds import Make
from residual_audio.benchmarks.small_model import small_model
from residual_audio.data.registry import load_dataset
from residual_audio.embeddings.vector_cache import Embedded
from residual_audio.extraction.extraction import extract
from residual_audio.models import native
from residual_audio.pipeline import work as steps
from residual_audio.pipeline.run import run
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.steps import RECORD
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT
from residual_audio.store.other_formats import export_store
from residual_audio.store.reader import open_store
from residual_audio.types import Gains, Spectrum

CLASSES = "drum,siren,rain,heartbeat"
MODEL = "model"
ENCODER = {
    "embed_dim": 8,
    "depths": [1, 1],
    "n_heads": [2, 2],
    "window": 4,
    "spec_size": 64,
    "n_mels": 64,
}
N_CLIPS = 12
FEW_FIGURES = ("scree", "fisher", "block_ablation")


@dataclass(frozen=True)
class Work:
    """Writes to a folder; called again after a crash it must come to the same files."""

    name: str
    write: Callable[[Path], None]
    starts_from: tuple[Make, ...] = ()
    """What is done first, undisturbed."""
    may_refuse: str = ""
    """What the next start may say is there already; without it, it starts anew."""
    marks: str = ""
    """A file that is written at the end of each part."""


def extract_small(out: Path) -> None:
    torch.set_num_threads(1)
    data = load_dataset("synthetic", n_clips=8, duration_s=1.0)
    extract(small_model(), data, out, capture="all", shard_size=4, n_threads=0, device="cpu")


def train_small(out: Path, stop_after: int | None = None) -> None:
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
    run_training(
        Recipe.model_validate(recipe), out, out / "training", torch.device("cpu"),
        stop_after=stop_after,
    )  # fmt: skip


def trained(out: Path) -> None:
    """The trained model alone, in `out/model`."""
    import shutil

    train_small(out)
    (out / "training" / MODEL).rename(out / MODEL)
    shutil.rmtree(out / "training")


def settings_of(out: Path) -> RunSettings:
    torch.set_num_threads(1)
    os.environ["RESIDUAL_AUDIO_CACHE"] = str(out.parent / "cache")
    made = {"n_clips": N_CLIPS, "classes": CLASSES, "seed": 90_001}
    asked = RunSettings(
        str(out / MODEL), "synthetic", out, data_options=made, quick=True, n_exact=4
    )
    return replace(asked, n_previews=4, n_folds=2)


STEPS: dict[str, Callable[[Workshop], Any]] = {
    "extract": steps.extract_store,
    "analyse": steps.analyse_store,
    "ablate": steps.ablate_store,
    "reweight": steps.reweight_store,
    "evaluate": steps.evaluate_store,
    "listen": steps.listen_to_heads,
    "report": steps.write_report,
    "atlas": steps.write_head_atlas,
}


def step_of_run(name: str, out: Path) -> None:
    STEPS[name](Workshop(settings_of(out), SILENT))


def run_until(name: str) -> tuple[Make, ...]:
    """What makes a run up to a step, without it."""
    before = list(STEPS)[: list(STEPS).index(name)]
    # nothing rests on the figures, and they take longest
    return (trained, *(partial(step_of_run, step) for step in before if step != "report"))


def _report(out: Path) -> None:
    """A few figures and the page; all of them are drawn by the whole run."""
    from residual_audio.report.figures import draw_all
    from residual_audio.report.page import write_page

    draw_all(out, FEW_FIGURES, formats=("png",))
    write_page(out)


def whole_run(out: Path) -> None:
    """All steps, with one figure."""
    from residual_audio.report import figures

    for name in [name for name in figures.FIGURES if name != "fisher"]:
        del figures.FIGURES[name]  # of this process, which does nothing else
    run(settings_of(out))


def _convert(out: Path) -> None:
    if not (out / MODEL).is_dir():
        native.save(small_model(), out / MODEL)


def _export(out: Path) -> None:
    export_store(open_store(out), out / "store.npz", overwrite=True)


def _fold(out: Path) -> None:
    """Gains into the weights of a checkpoint of its own."""
    from residual_audio.models.registry import load_model
    from residual_audio.reweight.folded_checkpoint import fold_copy, write_folded

    torch.set_num_threads(1)
    spectrum = Spectrum(np.zeros(8), np.eye(8), np.ones(8), 9)
    halves = np.full(8, 0.5, np.float32)
    gains = Gains({"s1.b0.h0": halves}, {"s1.b0.h0": spectrum}, path="network")
    model = load_model(str(out / MODEL), "cpu")
    write_folded(fold_copy(model, [gains]), "native", out / "folded")


def cached(out: Path) -> Embedded:
    """Embeddings of a data set, computed once and kept in the cache."""
    from residual_audio.embeddings.of_dataset import embed_clips
    from residual_audio.models.registry import load_model

    torch.set_num_threads(1)
    os.environ["RESIDUAL_AUDIO_CACHE"] = str(out / "cache")
    data = load_dataset("synthetic", n_clips=4, classes=CLASSES)
    return embed_clips(load_model(str(out / MODEL), "cpu"), data)


def keep_vectors(out: Path) -> None:
    cached(out)


_OF_A_RUN = ("analyse", "ablate", "reweight", "evaluate", "listen", "atlas")
WORKS = (
    Work("extract", extract_small),
    *(Work(name, partial(step_of_run, name), run_until(name)) for name in _OF_A_RUN),
    Work("report", _report, run_until("report")),
    Work("cache", keep_vectors, (trained,)),
    Work("convert", _convert),
    Work("export", _fold, (trained,), may_refuse="folded"),
    Work("store export", _export, (extract_small,)),
    Work("train", train_small),
    Work("run", whole_run, (trained,), marks=RECORD),
)
