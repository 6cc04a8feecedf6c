"""What people give where a model or a data set is asked for: the thing itself, or its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from residual_audio.data.base import Dataset
from residual_audio.data.file_list import dataset_of_files
from residual_audio.data.registry import load_dataset
from residual_audio.embeddings.of_folder import audio_files
from residual_audio.errors import InputError
from residual_audio.models.clap import AudioTextModel
from residual_audio.reweight.gain_files import find_gains, load_gains
from residual_audio.reweight.gain_files import save_gains as save_gains
from residual_audio.surface.model import Model, load_model
from residual_audio.types import Gains

ModelLike = AudioTextModel | str
"""A model, or its name."""
DatasetLike = Dataset | str | Path | Sequence[str | Path]
"""A data set, its name, a folder with one sub-folder a class (as a `Path`), or a list of files."""
GainsLike = Gains | str | Path
"""Gains, or the file or run that holds them."""


def given_model(model: ModelLike, device: str | torch.device = "auto") -> Model:
    return load_model(model, device) if isinstance(model, str) else Model.of(model)


def given_dataset(
    dataset: DatasetLike,
    root: str | Path | None = None,
    labels: Sequence[str | None] | None = None,
) -> Dataset:
    """By name with `root`, as it is, a folder of sounds, or a list of files with a label each."""
    if isinstance(dataset, Path):
        dataset = load_dataset("folder", dataset)
    if isinstance(dataset, str | Dataset):
        if labels is not None:
            raise InputError("labels= belong to a list of files: a data set has its own")
        return load_dataset(dataset, root) if isinstance(dataset, str) else dataset
    return dataset_of_files(list(dataset), labels)


def given_files(files: Sequence[Path]) -> list[Path]:
    """As they are; of a folder, every sound file below it, in order."""
    return [one for path in files for one in (audio_files(path) if path.is_dir() else (path,))]


def given_gains(gains: GainsLike) -> Gains:
    return gains if isinstance(gains, Gains) else load_gains(find_gains(Path(gains)))
