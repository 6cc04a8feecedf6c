"""Sound → unit vectors in the joint space, by the one loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize

from residual_audio.engine.cores import stream_clips
from residual_audio.models.evaluating import evaluating, full_precision
from residual_audio.passes.loop import Cut, Hearing, hear
from residual_audio.passes.places import running
from residual_audio.progress import SILENT, Progress

Item = TypeVar("Item")


class Embedder(Protocol):
    """As far as embedding windows needs to know a model."""

    @property
    def device(self) -> torch.device: ...

    @property
    def joint_dim(self) -> int: ...

    def embed_windows(self, waves: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class AudioVectors:
    """Unit vectors, and what could not be heard."""

    vectors: npt.NDArray[np.float32]
    """[row, joint]"""
    places: tuple[int, ...]
    """The item that each row belongs to, in order."""
    skipped: Mapping[int, Exception]
    """Place of an item → why it has no row."""


def embed_items(
    model: Embedder,
    items: Sequence[Item],
    cut: Cut[Item],
    hearing: Hearing | None = None,
    *,
    each_window: bool = False,
    strict: bool = False,
    progress: Progress = SILENT,
) -> AudioVectors:
    """One vector an item, the mean of its windows' vectors; with `each_window`, one a window.

    What cannot be heard is skipped with its reason; `strict` raises the first such error instead.
    The same input always gives the same vector.
    """
    skipped: dict[int, Exception] = {}
    skip = None if strict else skipped.__setitem__
    vectors: list[Tensor] = []
    owners: list[int] = []
    n_done = 0

    def embed(waves: Tensor, places: Sequence[int]) -> tuple[Tensor, Sequence[int]]:
        with running(len(items), places), full_precision(waves.device):
            return normalize(model.embed_windows(waves).float(), dim=-1).cpu(), places

    progress.step("embedding", len(items))
    heard = hear(items, cut, hearing, device=model.device, skip=skip)
    with torch.inference_mode(), evaluating(model), closing(heard) as batches:
        for some, places in stream_clips(embed, batches):
            vectors.append(some)
            owners += places
            progress.advance(owners[-1] + 1 - n_done)
            n_done = owners[-1] + 1
    progress.advance(len(items) - n_done)
    if not vectors:
        return AudioVectors(np.zeros((0, model.joint_dim), np.float32), (), skipped)
    found = torch.cat(vectors)
    if not skipped.keys().isdisjoint(owners):  # broke off after some of its windows
        whole = [i for i, owner in enumerate(owners) if owner not in skipped]
        found, owners = found[whole], [owners[i] for i in whole]
    places = tuple(owners) if each_window else tuple(dict.fromkeys(owners))
    rows = range(len(owners)) if each_window else _rows_of(owners, places)
    # types and devices by name: the defaults of the program around may be others
    index = torch.tensor(rows, device=found.device, dtype=torch.long)
    summed = found.new_zeros(len(places), found.shape[1]).index_add_(0, index, found)
    return AudioVectors(normalize(summed, dim=-1).numpy(), places, skipped)


def _rows_of(owners: Sequence[int], places: Sequence[int]) -> list[int]:
    row = {place: i for i, place in enumerate(places)}
    return [row[owner] for owner in owners]
