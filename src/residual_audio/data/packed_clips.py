"""Clips of a very large set: columns in memory, a `Clip` when it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from residual_audio.types import Clip

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 512
"""Rows that are Python objects at a time: more of them cost memory and save no time."""
_ROWS_A_LIST = 4096
"""Rows that the digest takes as one list. Stores know their data set by it, so it stays."""


@dataclass
class ClipRows:
    """Gathers rows and packs them away as it goes: a tenth of the memory of so many objects."""

    n: int = 0
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _packed: list[Any] = field(default_factory=list)
    _digest: Any = field(default_factory=hashlib.sha256)
    _listed: int = 0
    """Rows of the list that the digest is in the middle of."""

    def add(self, file: int, inside: tuple[int, int], clip: Clip) -> None:
        self._rows.append(
            {
                "id": clip.id,
                "file": file,
                "first": inside[0],
                "second": inside[1],
                "label": clip.label,
                "captions": list(clip.captions),
                "fold": clip.fold,
                "group": clip.group,
            }
        )
        self.n += 1
        if len(self._rows) == _ROWS_AT_ONCE:
            self._pack()

    def digest(self) -> str:
        """Over everything that was added so far, file numbers and places included."""
        self._end_list()
        return str(self._digest.hexdigest())

    def clips(self, files: Sequence[Path]) -> PackedClips:
        import pyarrow as pa

        self._end_list()
        # left in pieces: one piece would be a copy, whose first form the allocator keeps for itself
        return PackedClips(tuple(files), pa.Table.from_batches(self._packed, schema=_schema()))

    def _pack(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        inside = repr(self._rows)[1:-1]
        self._digest.update(f"{', ' if self._listed else '['}{inside}".encode())
        self._listed += len(self._rows)
        self._packed.append(pa.RecordBatch.from_pylist(self._rows, schema=_schema()))
        self._rows = []
        if self._listed == _ROWS_A_LIST:
            self._end_list()

    def _end_list(self) -> None:
        self._pack()
        if self._listed:
            self._digest.update(b"]")
            self._listed = 0


def _schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            ("file", pa.int32()),
            ("first", pa.int64()),
            ("second", pa.int64()),
            ("label", pa.string()),
            ("captions", pa.list_(pa.string())),
            ("fold", pa.int64()),
            ("group", pa.string()),
        ]
    )


class PackedClips(Sequence[Clip]):
    """Reads like a tuple of clips."""

    def __init__(self, files: tuple[Path, ...], table: pa.Table) -> None:
        self.files, self._table = files, table
        self._columns = [table.column(name) for name in table.column_names]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PackedClips):
            return NotImplemented
        return self.files == other.files and bool(self._table.equals(other._table))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedClips, (self.files, self._table)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Clip, ...]: ...
    def __getitem__(self, index: int | slice) -> Clip | tuple[Clip, ...]:
        at = range(len(self))[index]
        if isinstance(at, range):
            return tuple(self[i] for i in at)
        return self._clip([column[at].as_py() for column in self._columns])

    def __iter__(self) -> Iterator[Clip]:
        for batch in self._table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield self._clip(list(row))

    def labels(self) -> tuple[str, ...]:
        """Those that occur, sorted."""
        found = self._table.column("label").unique().to_pylist()
        return tuple(sorted(label for label in found if label))

    def folds(self) -> tuple[int, ...]:
        found = self._table.column("fold").unique().to_pylist()
        return tuple(sorted(int(fold) for fold in found if fold is not None))

    def repeated(self) -> str | None:
        """An id that stands twice."""
        import pyarrow as pa

        ids = self._table.column("id")
        n_different = len(ids.unique())
        pa.default_memory_pool().release_unused()  # three times the ids
        if n_different == len(ids):
            return None
        values, counts = np.unique(ids.to_numpy(), return_counts=True)
        return str(values[counts > 1][0])

    def _clip(self, row: list[Any]) -> Clip:
        name, file, first, second, label, captions, fold, group = row
        return Clip(
            id=name,
            path=self.files[file],
            label=label,
            captions=tuple(captions or ()),
            fold=fold,
            group=group,
            inside=(first, second),
        )
