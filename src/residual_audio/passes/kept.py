"""A model and the features of many clips, ready to be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from residual_audio.data.base import Dataset
from residual_audio.errors import InputError, ModelError
from residual_audio.models.clap import AudioTextModel
from residual_audio.models.encoder import Encoded, Encoder, Features

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
    features: Tensor | tuple[Tensor, Tensor]

    def __len__(self) -> int:
        return len(self.features[0] if isinstance(self.features, tuple) else self.features)

    def take(self, rows: Any) -> Features:
        """Features of these clips."""
        if isinstance(self.features, tuple):
            return self.features[0][rows], self.features[1][rows]
        return self.features[rows]

    def batches(
        self, rows: Sequence[int] | None = None, size: int = 16, seed: int | None = None
    ) -> Iterator[tuple[Tensor, Features]]:
        """Clip numbers and features; with a seed, in shuffled order."""
        index = torch.arange(len(self)) if rows is None else torch.as_tensor(np.asarray(rows))
        if seed is not None:
            index = index[torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))]
        for part in index.split(size):
            yield part, self.take(part)


@torch.no_grad()
def load_passes(
    model: AudioTextModel,
    dataset: Dataset,
    ids: Sequence[str],
    *,
    sha256: str | None = None,
    progress: Callable[[int], None] | None = None,
    batch_size: int = 16,
) -> Passes:
    """Features of these clips of a data set, as extraction made them (first window of each)."""
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
    parts: list[Any] = []
    for start in range(0, len(ids), batch_size):
        waves = [
            model.windows(dataset.read(by_id[i], model.sample_rate_hz))[0]
            for i in ids[start : start + batch_size]
        ]
        parts.append(model.front_end(torch.from_numpy(np.stack(waves)).to(model.device)))
        if progress is not None:
            progress(len(waves))
    if not parts:
        raise InputError("there is no clip to run")
    if isinstance(parts[0], tuple):
        return Passes(model, (torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])))
    return Passes(model, torch.cat(parts))
