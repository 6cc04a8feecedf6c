"""Clips → windows, in batches, ahead of the encoder; a clip that cannot be read says why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Dataset
from residual_audio.errors import ResidualAudioError, StoreError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Features
from residual_audio.provenance import without_machine_paths
from residual_audio.types import Clip


@dataclass(frozen=True)
class Batch:
    """Windows of some clips, and the clips that have none."""

    groups: list[tuple[list[int], np.ndarray]]
    """Places of neighbouring clips of one length, and their windows [clip, sample]; mostly a
    single group."""
    skipped: dict[int, str]
    """Place → reason."""


def read_batch(
    model: AudioTextModel, dataset: Dataset, places: range, long: LongPolicy = "first"
) -> Batch:
    """Decode (or make) and fit to the model's window."""
    runs: list[tuple[list[int], list[np.ndarray]]] = []
    skipped: dict[int, str] = {}
    for place in places:
        clip = dataset.clips[place]
        try:
            wave = dataset.read(clip, model.sample_rate_hz)
            window = model.windows(wave, long)[0]
        except (ResidualAudioError, OSError) as error:
            skipped[place] = reason(error, clip)
            continue
        if not np.isfinite(window).all():
            skipped[place] = "holds NaN or infinite samples"
            continue
        if not runs or len(runs[-1][1][0]) != len(window):
            runs.append(([], []))
        runs[-1][0].append(place)
        runs[-1][1].append(window)
    return Batch([(group, np.stack(waves)) for group, waves in runs], skipped)


def first_features(model: AudioTextModel, dataset: Dataset, long: LongPolicy) -> Features:
    """Features of the first clip that can be read."""
    why = ""
    for place in range(len(dataset.clips)):
        batch = read_batch(model, dataset, range(place, place + 1), long)
        if batch.groups:
            return features(model, torch.from_numpy(batch.groups[0][1]).to(model.device))
        why = why or batch.skipped[place]
    raise none_readable(dataset, why)


def none_readable(dataset: Dataset, why: str) -> StoreError:
    return StoreError(
        f"none of the {len(dataset.clips)} clips of '{dataset.name}' could be read. "
        f"The first: {why}"
    )


@torch.inference_mode()
def features(model: AudioTextModel, waves: torch.Tensor) -> Features:
    """What the front-end makes of windows, in the precision of the encoder."""
    dtype = next(model.parameters()).dtype
    found: Any = model.front_end(waves)
    if isinstance(found, tuple):
        return found[0].to(dtype), found[1]
    return found.to(dtype)


def reason(error: Exception, clip: Clip) -> str:
    """Why a clip was skipped, without its name, so that like reasons can be counted together."""
    text = str(error)
    names = [clip.id] if clip.path is None else [str(clip.path), clip.path.name, clip.id]
    for name in names:
        text = text.replace(f"'{name}'", "the clip")
    return without_machine_paths(text)
