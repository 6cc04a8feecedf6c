"""The one loop: items → windows → batches, in order, read ahead; what cannot be heard says why."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from residual_audio.audio.prefetch import prefetch
from residual_audio.audio.windows import LongPolicy
from residual_audio.errors import (
    AudioError,
    DatasetError,
    InputError,
    ResidualAudioError,
    UnreachableError,
)

Item = TypeVar("Item")
Windows = npt.NDArray[np.float32]
"""[window, sample]"""
Cut = Callable[[Item], Windows | Iterator[npt.NDArray[np.float32]]]
"""Reads an item (a clip, a file, a waveform) and cuts its windows; of a long one they come one by
one, read as they are taken."""
Skip = Callable[[int, Exception], None]
"""Told the place of an item that cannot be heard, and why."""
LOUDEST = 1e10
"""Above any scale that sound is kept in (integers of 32 bits as floats are below 1e10); powers of
such values still fit into float32."""


@dataclass(frozen=True)
class Hearing:
    """How clips are heard."""

    long: LongPolicy = "first"
    """What is heard of a clip that is longer than the model's window."""
    batch_size: int = 8
    """Windows that run together."""
    n_threads: int = 2
    """Threads that read ahead."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise InputError(f"a batch size of {self.batch_size} makes no sense: give 1 or more")


def heard_as(long: LongPolicy) -> LongPolicy:
    """What is heard of the rows of a store: under `tile` each is a window already."""
    return "first" if long == "tile" else long


@dataclass
class Reach:
    """Stops a run whose files cannot be opened any more: the disk is gone, not the clips bad."""

    most: int = 10
    """Failures in a row that are still taken for single files."""
    in_a_row: int = 0

    def heard(self) -> None:
        self.in_a_row = 0

    def failed(self, error: Exception) -> None:
        self.in_a_row = self.in_a_row + 1 if passing(error) else 0
        if self.in_a_row >= self.most:
            raise DatasetError(
                f"{self.in_a_row} files in a row could not be opened: is the disk or the network "
                f"folder still there? The last: {error}. What is finished is kept, and the same "
                "command goes on from there"
            ) from error


def passing(error: Exception) -> bool:
    """Whether a file could not be opened, which may be otherwise later; else it is bad."""
    return isinstance(error, UnreachableError | OSError)


class Heard(NamedTuple):
    """Windows of one length that run together, and the place of the item that each is from."""

    waves: Tensor
    """[window, sample]"""
    places: list[int]


def hear(
    items: Iterable[Item],
    cut: Cut[Item],
    hearing: Hearing | None = None,
    *,
    device: torch.device | str = "cpu",
    skip: Skip | None = None,
    reach: Reach | None = None,
) -> Generator[Heard, None, None]:
    """Batches of the windows of all items, in order.

    Items are taken by place, `batch_size` at a time, so that what runs together does not depend on
    what could be read before it. A batch ends early where the length changes (models that read
    clips of any length) and is never longer than `batch_size` windows. An item that cannot be read
    is told to `skip`; without one its error is raised. One that breaks off after some windows is
    told too, when those may have been given out already. Too many in a row that cannot be opened
    end the run (`reach` counts over several calls).
    """
    hearing, reach = hearing or Hearing(), reach or Reach()
    size = hearing.batch_size
    waiting: list[npt.NDArray[np.float32]] = []
    places: list[int] = []

    def batch() -> Heard:
        nonlocal waiting, places
        heard = Heard(torch.from_numpy(np.stack(waiting)).to(device), places)
        waiting, places = [], []
        return heard

    # One batch ready besides those being read, so that a stall costs no time. Closed at once, also
    # when an item raises: its threads must not wait for the collector.
    depth = (1 + hearing.n_threads) * size
    with closing(prefetch(items, _finite(cut), hearing.n_threads, depth)) as stream:
        for place, (_, windows, error) in enumerate(stream):
            if waiting and place % size == 0:
                yield batch()
            if windows is None:
                assert error is not None
                if skip is None or not isinstance(error, ResidualAudioError | OSError):
                    raise error
                skip(place, error)
                reach.failed(error)
                continue
            reach.heard()
            try:
                for window in windows:
                    if waiting and (len(waiting) == size or len(waiting[0]) != len(window)):
                        yield batch()
                    waiting.append(window)
                    places.append(place)
            except (ResidualAudioError, OSError) as broken:  # after hours of a long recording
                if skip is None:
                    raise
                skip(place, broken)
                n = sum(one != place for one in places)
                waiting, places = waiting[:n], places[:n]
    if waiting:
        yield batch()


def _finite(cut: Cut[Item]) -> Cut[Item]:
    def windows_of(item: Item) -> Windows | Iterator[npt.NDArray[np.float32]]:
        windows = cut(item)
        return map(_check, windows) if isinstance(windows, Iterator) else _check(windows)

    return windows_of


def _check(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    largest = np.abs(samples).max(initial=0.0)
    if not np.isfinite(largest):
        raise AudioError("holds NaN or infinite samples")
    if largest > LOUDEST:
        raise AudioError(f"holds samples as large as {largest:.0e}, where full scale is 1")
    return samples
