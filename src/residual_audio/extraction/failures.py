"""Shards that could not be made: said, kept as skipped, and the rest goes on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from residual_audio.errors import (
    DatasetError,
    InputError,
    MissingExtraError,
    ResidualAudioError,
    StoreError,
)
from residual_audio.extraction.worker import ShardTask
from residual_audio.provenance import without_machine_paths
from residual_audio.store.shards import FAILED, ShardNote, ShardRows, Skipped, write_shard

_OF_ALL = (OSError, StoreError, InputError, DatasetError, MissingExtraError)
"""Errors that the next shard would meet too: a full disk, a batch too large, data gone."""
_IN_A_ROW = 3
"""Failures one after the other that still are single shards."""


class Failures:
    """Judges the errors of shards: of that shard alone, or of the whole run."""

    def __init__(self, n_good: int) -> None:
        """`n_good` shards are there already."""
        self._n_good = n_good
        self._in_a_row = 0
        self._first: Exception | None = None
        self._tasks: dict[int, tuple[ShardTask, Exception]] = {}

    def good(self) -> None:
        self._n_good += 1
        self._in_a_row = 0

    def add(self, task: ShardTask, error: Exception) -> None:
        """Raise what concerns the whole run."""
        self._in_a_row += 1
        self._first = self._first or error
        if isinstance(error, _OF_ALL):
            raise error
        if self._in_a_row >= _IN_A_ROW:
            raise error if self._n_good else self._first
        self._tasks[task.index] = (task, error)

    def notes(self, folder: Path, run: str) -> Mapping[int, ShardNote]:
        """Empty shards in place of the failed ones, which are tried again another time."""
        if self._first is not None and not self._n_good:
            raise self._first
        return {
            index: _stand_in(folder, run, task, error)
            for index, (task, error) in self._tasks.items()
        }


def _stand_in(folder: Path, run: str, task: ShardTask, error: Exception) -> ShardNote:
    text = (
        str(error) if isinstance(error, ResidualAudioError) else f"{type(error).__name__}: {error}"
    )
    why = Skipped(FAILED + without_machine_paths(text), passing=True)
    skipped = dict.fromkeys(task.places, why)
    return write_shard(folder, run, task.index, task.places, ShardRows(), skipped)
