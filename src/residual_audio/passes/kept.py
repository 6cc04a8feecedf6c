"""A model and the features of many clips, ready to be run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from residual_audio.data.base import Dataset
from residual_audio.errors import InputError, ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoded, Encoder, Features
from residual_audio.models.evaluating import evaluating
from residual_audio.passes.lengths import Rows, Which
from residual_audio.passes.loop import Hearing, hear
from residual_audio.passes.sources import cut_clips
from residual_audio.progress import SILENT, Progress

Batches = Iterable[tuple[Tensor, Features]]
"""Clip numbers [clip] and their features."""


class Audio(Protocol):
    """The audio side of a model, as far as interventions need it."""

    @property
    def encoder(self) -> Encoder: ...

    def joint(self, encoded: Encoded) -> Tensor: ...


@dataclass(frozen=True)
class Passes:
    """Features of all clips, in the order of the store they belong to."""

    model: AudioTextModel
    features: Rows

    def __len__(self) -> int:
        return len(self.features)

    def take(self, which: Which) -> Features:
        """Features of these clips, which must be of one length."""
        return self.features.take(which)

    def batches(
        self, rows: Sequence[int] | None = None, size: int = 16, seed: int | None = None
    ) -> Iterator[tuple[Tensor, Features]]:
        """Clip numbers and features; with a seed, in shuffled order.

        Clips of different lengths inside a batch come one length at a time.
        """
        index = torch.arange(len(self)) if rows is None else torch.as_tensor(rows)
        if seed is not None:
            index = index[torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))]
        for part in index.split(size):
            for places, features in self.features.pick(part):
                yield part[places], features


@torch.no_grad()
def load_passes(
    model: AudioTextModel,
    dataset: Dataset,
    ids: Sequence[str],
    hearing: Hearing,
    *,
    sha256: str | None = None,
    progress: Progress = SILENT,
) -> Passes:
    """Features of these clips of a data set; `hearing` says what extraction heard of long ones."""
    if sha256 is not None and model.sha256 != sha256:
        raise ModelError(
            f"'{model.name}' is not the model that the store was made with "
            f"(sha256 {model.sha256[:12]}…, not {sha256[:12]}…)"
        )
    by_id = {clip.id: clip for clip in dataset.clips}
    missing = [i for i in ids if i not in by_id]
    if missing:
        raise InputError(
            f"'{missing[0]}' is in the store but not in data set '{dataset.name}': give the data "
            "set that the store was made from"
        )
    progress.step("features", len(ids))
    clips = [by_id[i] for i in ids]
    cut = cut_clips(model, dataset, hearing.long)

    def parts() -> Iterator[tuple[list[int], Features]]:
        heard = hear(clips, cut, hearing, device=model.device)
        with evaluating(model), closing(heard) as batches:
            for waves, places in batches:
                yield places, model.features(waves)
                progress.advance(len(places))

    return Passes(model, Rows.collect(parts(), len(ids)))
