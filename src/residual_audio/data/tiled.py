"""Long recordings as windows: a data set whose clips are the windows of another's.

Each window knows the recording that it is part of and has its label, captions, fold and group, so
that no split and no bootstrap tears a recording apart. Nothing is decoded beforehand but lengths.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from residual_audio.audio.spans import sound_length
from residual_audio.audio.windows import n_tiles, tile_start
from residual_audio.data.base import Dataset
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.types import Clip

_READERS = 4
_KEPT = 2


@dataclass(frozen=True)
class Tiling:
    """How a recording is cut."""

    sample_rate_hz: int
    n_samples: int
    """Of a window."""
    hop: int
    """Samples from the beginning of a window to that of the next."""

    @classmethod
    def of(cls, sample_rate_hz: int, n_samples: int, hop_s: float | None = None) -> Tiling:
        """One window after the other, or one every `hop_s` seconds."""
        hop = n_samples if hop_s is None else round(hop_s * sample_rate_hz)
        window_s = n_samples / sample_rate_hz
        if not 1 <= hop <= n_samples:
            raise InputError(
                f"a hop of {hop_s:g} s leaves gaps or goes nowhere: windows are {window_s:g} s "
                f"long, so give more than 0 and at most {window_s:g} s"
            )
        return cls(sample_rate_hz, n_samples, hop)


class WindowClips(Sequence[Clip]):
    """Reads like a tuple of windows, each made when it is asked for."""

    def __init__(self, of: Dataset, lengths: npt.NDArray[np.int64], tiling: Tiling) -> None:
        """`lengths` in samples; 0 where nobody knows: that clip stays as it is."""
        self.of, self.lengths, self.tiling = of, lengths, tiling
        counts = [n_tiles(int(n), tiling.n_samples, tiling.hop) for n in lengths]
        self._ends = np.cumsum(np.asarray(counts, np.int64))

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that the recordings lie in, where many lie in one."""
        return tuple(self.of.archives())

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __reduce__(self) -> tuple[Any, ...]:
        return WindowClips, (self.of, self.lengths, self.tiling)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Clip, ...]: ...
    def __getitem__(self, index: int | slice) -> Clip | tuple[Clip, ...]:
        at = range(len(self))[index]
        if isinstance(at, range):
            return tuple(self[i] for i in at)
        owner = int(np.searchsorted(self._ends, at, side="right"))
        number = at - (int(self._ends[owner - 1]) if owner else 0)
        return self._window(self.of.clips[owner], int(self.lengths[owner]), number)

    def _window(self, clip: Clip, n: int, number: int) -> Clip:
        rate, size = self.tiling.sample_rate_hz, self.tiling.n_samples
        if n <= size:
            return clip
        start = tile_start(n, size, self.tiling.hop, number) / rate
        return replace(
            clip,
            id=f"{clip.id}@{f'{start:.5f}'.rstrip('0').rstrip('.')}s",
            group=clip.group or clip.id,
            part_of=clip.id,
            span=(start, size / rate),
        )


class FetchedAgain:
    """Keeps the sound files that were read last: windows of one follow each other."""

    def __init__(self, fetch: Callable[[Clip], bytes]) -> None:
        self.fetch = fetch
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[object, object], bytes] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return FetchedAgain, (self.fetch,)

    def __call__(self, clip: Clip) -> bytes:
        with self._lock:
            key = (clip.path, clip.inside)
            if key not in self._kept:
                self._kept[key] = self.fetch(clip)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]


def tiled(dataset: Dataset, tiling: Tiling) -> Dataset:
    """The data set of all windows; a clip no longer than a window stays what it is."""
    how = f"windows of {tiling.n_samples} samples every {tiling.hop} at {tiling.sample_rate_hz} Hz"
    return replace(
        dataset,
        clips=WindowClips(dataset, clip_lengths(dataset, tiling.sample_rate_hz), tiling),
        pairs=(),
        recipe=f"{how} of {dataset.fingerprint()}",
        fetch=None if dataset.fetch is None else FetchedAgain(dataset.fetch),
    )


def recordings(dataset: Dataset) -> Dataset:
    """What the windows are of; any other data set is its own."""
    return dataset.clips.of if isinstance(dataset.clips, WindowClips) else dataset


def clip_lengths(dataset: Dataset, sample_rate_hz: int) -> npt.NDArray[np.int64]:
    """Samples of each clip at this rate; 0 where that cannot be told: reading it will say why."""

    def length(clip: Clip) -> int:
        try:
            place = dataset.sound(clip)
            if place is None:
                return len(dataset.read(clip, sample_rate_hz))
            return sound_length(place, sample_rate_hz)
        except (ResidualAudioError, OSError):
            return 0

    with ThreadPoolExecutor(_READERS) as readers:
        return np.fromiter(readers.map(length, dataset.clips), np.int64, len(dataset.clips))
