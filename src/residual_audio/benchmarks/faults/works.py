"""Small pieces of real work that write files: what the campaigns crash and damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from residual_audio.benchmarks.small_model import small_model
from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.models import native
from residual_audio.store.reader import open_store
from residual_audio.types import Gains, Result, Score, Spectrum


@dataclass(frozen=True)
class Work:
    """Writes to a folder; called again after a crash it must come to the same files."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], None]
    """Reads all of it back, or raises an error that names the file."""


def extract_small(out: Path) -> None:
    torch.set_num_threads(1)
    data = load_dataset("synthetic", n_clips=8, duration_s=1.0)
    extract(small_model(), data, out, capture="all", shard_size=4, n_threads=0, device="cpu")


def read_store(out: Path) -> None:
    store = open_store(out)
    for name in store.names:
        for _ in store.pieces(name):
            pass
    for name in store.operator_names:
        store.operator(name)
    _ = store.all_clips, store.text_record


def _analyse(out: Path) -> None:
    from residual_audio.analysis.analysis import Options, analyse
    from residual_audio.report.write import write_analysis

    extract_small(out)
    write_analysis(analyse(open_store(out), Options(parts=frozenset({"spectra"}))), out)


def read_tables(out: Path) -> None:
    from residual_audio.table import read_csv

    for path in sorted((out / "tables").glob("*.csv")):
        read_csv(path)


def _result(out: Path) -> None:
    from residual_audio.results import write_result

    scores = (Score("top1", 0.5, 0.4, 0.6, 100, 0.02),)
    write_result(Result("zero-shot", "small", "synthetic", "all", scores), out / "results")


def _read_result(out: Path) -> None:
    from residual_audio.results import read_results

    read_results([out / "results"])


def _gains(out: Path) -> None:
    from residual_audio.reweight.gain_files import save_gains

    draw = np.random.default_rng(0)
    spectra = {
        f"s0.b0.h{i}": Spectrum(draw.normal(size=4), np.eye(4), np.ones(4), 9) for i in (0, 1)
    }
    values = {unit: draw.normal(1, 0.1, 4).astype(np.float32) for unit in spectra}
    save_gains(Gains(values, spectra), out / "gains" / "small")


def _read_gains(out: Path) -> None:
    from residual_audio.reweight.gain_files import load_gains

    load_gains(out / "gains" / "small")


def _model(out: Path) -> None:
    if not (out / "model").is_dir():
        native.save(small_model(), out / "model")


def _read_model(out: Path) -> None:
    native.load(out / "model")


def _export(out: Path) -> None:
    from residual_audio.store.other_formats import export_store

    extract_small(out)
    export_store(open_store(out), out / "store.npz", overwrite=True)


WORKS = (
    Work("extract", extract_small, read_store),
    Work("analyse", _analyse, read_tables),
    Work("evaluate", _result, _read_result),
    Work("reweight", _gains, _read_gains),
    Work("convert", _model, _read_model),
    Work("export", _export, read_store),
)
