"""Tensors of many clips, one row a clip, where clips may be of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from residual_audio.errors import InputError
from residual_audio.models.encoder import Features

Which = Tensor | slice | Sequence[int] | np.ndarray
"""Clip numbers."""


@dataclass(frozen=True)
class Rows:
    """Clips of one length lie together; a clip is found by its number whatever its length."""

    groups: tuple[Features, ...]
    group: Tensor
    """[clip] where a clip lies …"""
    row: Tensor
    """[clip] … and in which row."""

    @classmethod
    def of(cls, features: Features) -> Rows:
        """Clips of one length, in order."""
        n = n_clips(features)
        return cls((features,), torch.zeros(n, dtype=torch.long), torch.arange(n))

    @classmethod
    def collect(
        cls,
        parts: Iterable[tuple[Sequence[int] | Tensor, Features]],
        n: int,
        max_bytes: int | None = None,
    ) -> Rows:
        """`n` clips from parts that name theirs; no second copy of the whole is ever made."""
        shelves: dict[tuple[tuple[int, ...], ...], list[Tensor]] = {}
        filled: dict[tuple[tuple[int, ...], ...], int] = {}
        group = torch.full((n,), -1, dtype=torch.long)
        row = torch.zeros(n, dtype=torch.long)
        for clips, features in parts:
            tensors = features if isinstance(features, tuple) else (features,)
            shape = tuple(tuple(t.shape[1:]) for t in tensors)
            if shape not in shelves:
                left = n - int((group >= 0).sum())
                _check_bytes(tensors, left, max_bytes)
                shelves[shape] = [t.new_empty((left, *t.shape[1:])) for t in tensors]
                filled[shape] = 0
            first, here = filled[shape], len(tensors[0])
            for shelf, tensor in zip(shelves[shape], tensors, strict=True):
                shelf[first : first + here] = tensor
            index = torch.as_tensor(clips)
            group[index] = list(shelves).index(shape)
            row[index] = torch.arange(first, first + here)
            filled[shape] += here
        if not n or bool((group < 0).any()):
            raise InputError("there is no clip to run")
        used = [[t[: filled[shape]] for t in shelf] for shape, shelf in shelves.items()]
        return cls(tuple(_features(tensors) for tensors in used), group, row)

    def __len__(self) -> int:
        return len(self.group)

    def take(self, which: Which) -> Features:
        """Of these clips, which must be of one length."""
        parts = list(self.pick(which))
        if len(parts) != 1:
            raise InputError(
                "these clips are of different lengths, and this needs clips of one length: "
                "extract with --long center"
            )
        return parts[0][1]

    def pick(self, which: Which) -> Iterator[tuple[Tensor, Features]]:
        """Of these clips, a length at a time: places in `which`, and the features there."""
        clips = self._numbers(which)
        groups = self.group[clips]
        for number in groups.unique().tolist():
            places = (groups == number).nonzero()[:, 0]
            features, rows = self.groups[number], self.row[clips[places]]
            if isinstance(features, tuple):
                yield places, (features[0][rows], features[1][rows])
            else:
                yield places, features[rows]

    def run(self, which: Which, work: Callable[[Features], Tensor]) -> Tensor:
        """`work` on each length at a time: one row a clip, in the order asked for."""
        parts = [(places, work(features)) for places, features in self.pick(which)]
        if len(parts) == 1:
            return parts[0][1]
        order = torch.cat([places for places, _ in parts]).argsort()
        found = torch.cat([value for _, value in parts])
        return found[order.to(found.device)]

    def _numbers(self, which: Which) -> Tensor:
        if isinstance(which, slice):
            return torch.arange(len(self))[which]
        if isinstance(which, Tensor):
            return which.cpu()
        return torch.as_tensor(np.asarray(which), dtype=torch.long)


def n_clips(features: Features) -> int:
    return len(features[0] if isinstance(features, tuple) else features)


def _features(tensors: Sequence[Tensor]) -> Features:
    return (tensors[0], tensors[1]) if len(tensors) == 2 else tensors[0]


def _check_bytes(tensors: Sequence[Tensor], n: int, max_bytes: int | None) -> None:
    size = n * sum(t[0].numel() * t.element_size() for t in tensors)
    if max_bytes is not None and size > max_bytes:
        raise InputError(
            f"what would be kept of {n} clips needs {size / 1e9:.1f} GB "
            f"(limit {max_bytes / 1e9:.1f}): take fewer clips, or units of later blocks"
        )
