"""A whole run of the small random model, with its atlas; hostile names if asked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from small_run import small_dataset, small_model

from residual_audio.adaptation.adapted import WHOLE, AdaptSettings, adapt
from residual_audio.adaptation.divisions import folds_of
from residual_audio.adaptation.front import front
from residual_audio.adaptation.front_edits import FrontFamily, edit_of_gains
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.references import elsewhere
from residual_audio.analysis.analysis import Options, analyse
from residual_audio.data.base import Dataset
from residual_audio.models.clap import AudioTextModel
from residual_audio.pipeline import work
from residual_audio.pipeline.run_settings import RunSettings
from residual_audio.pipeline.workshop import Workshop
from residual_audio.progress import SILENT
from residual_audio.report.write import write_analysis, write_tables
from residual_audio.results import write_result
from residual_audio.reweight.gain_files import save_gains
from residual_audio.reweight.gains import blend
from residual_audio.table import from_rows

LONGEST_WAIT_S = 300


def make_run(out: Path, dataset: Dataset | None = None, seed: int = 0, gains: bool = True) -> Path:
    """Every step of a run but the figures; returns the run folder, which has an atlas.

    Only the method that the sliders show is fitted, and on request: fitting takes longest.
    """
    settings = RunSettings("small", "synthetic", out, seed=seed, n_folds=2, n_exact=4, quick=True)
    at = Workshop(settings, SILENT)
    vars(at)["model"] = small_model()
    vars(at)["dataset"] = small_dataset() if dataset is None else dataset
    work.extract_store(at)
    # all but the parts whose imports alone take longer than a test may
    parts = frozenset({"separability", "attention", "pooling"})
    write_analysis(analyse(at.store, Options(parts=parts, seed=seed)), out)
    work.ablate_store(at)
    if gains:
        _fit(at)
    work.evaluate_store(at)
    work.listen_to_heads(at)
    work.write_head_atlas(at)
    return out


def silent_run(out: Path, model: AudioTextModel) -> Path:
    """A run of any model with what the map and the sliders need, without sounds and gains."""
    at = Workshop(RunSettings("small", "synthetic", out, n_folds=2, n_exact=0, quick=True), SILENT)
    vars(at)["model"], vars(at)["dataset"] = model, small_dataset()
    work.extract_store(at)
    write_analysis(analyse(at.store, Options(parts=frozenset({"attention"}))), out)
    work.write_head_atlas(at)
    return out


def _fit(at: Workshop) -> None:
    """Gains of the widest method and what they come to here and on a reference (the run itself),
    as `reweight` leaves them."""
    keep = (str(at.out),)
    asked = AdaptSettings(n_folds=2, methods=("residual",), retention=False, name=WHOLE, keep=keep)
    found = adapt(at.store, asked)
    write_tables(at.out, found.tables)
    write_result(found.result, at.out / "results")
    for name, gains in found.gain_files.items():
        save_gains(gains, at.out / "gains" / name)
    problem = problem_of(at.store)
    family = FrontFamily(
        "blend of the gains",
        lambda _, split: {a: edit_of_gains(blend(found.gains[split.name], a)) for a in HALVES},
    )
    places = elsewhere(keep, problem)
    points = front(problem, folds_of(problem.clips, 2, 0), places, among=[family])
    write_tables(at.out, [from_rows("front", points, "front")])


HALVES = (0.0, 0.5, 1.0)


def shared_run(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]) -> Path:
    """One run for all test processes of a session: the first to come makes it."""
    base = factory.getbasetemp()
    folder = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    out = folder / name
    with FileLock(folder / f"{name}.lock", timeout=LONGEST_WAIT_S):
        if not (out / "atlas" / "index.html").is_file():
            make(out)
    return out
