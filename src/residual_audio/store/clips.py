"""The clip index: one row a clip, in order, with what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from residual_audio.errors import StoreError
from residual_audio.files import read_parquet, replacing
from residual_audio.types import Clip

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "clips.parquet"
COLUMNS = ("id", "label", "fold", "group", "captions", "status", "reason")
OF_WINDOWS = ("part_of", "start_s")
"""The recording that a row is a window of, and where in it; only in indexes that have windows."""

_ROWS_AT_ONCE = 1024

Column = npt.NDArray[np.object_]


class ClipTable:
    """Columns by name, as object arrays; None where a clip has no value."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def __len__(self) -> int:
        if isinstance(self._columns, _Unread):
            return int(self._columns.table.num_rows)
        return len(self._columns["id"])

    def __getitem__(self, name: str) -> Column:
        if name in OF_WINDOWS and name not in self._columns:
            return np.full(len(self), None, dtype=object)
        if name not in self._columns:
            raise StoreError(f"clips have no column '{name}'; there are: {', '.join(COLUMNS)}")
        return self._columns[name]

    def __getattr__(self, name: str) -> Column:
        if name in COLUMNS + OF_WINDOWS:
            return self[name]
        raise AttributeError(name)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def where(self, rows: npt.NDArray[np.integer | np.bool_]) -> ClipTable:
        """The table with these rows (mask or indices)."""
        if isinstance(self._columns, _Unread):
            which = np.flatnonzero(rows) if rows.dtype == bool else rows
            return ClipTable(_Unread(self._columns.table.take(which)))
        return ClipTable({name: column[rows] for name, column in self._columns.items()})


class _Unread(Mapping[str, Column]):
    """Columns of a parquet table that become objects when they are asked for: a million clips are
    a hundred megabytes as they are, and ten times that as objects."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._read: dict[str, Column] = {}

    def __getitem__(self, name: str) -> Column:
        if name not in self._read:
            values = self.table.column(name).to_pylist()
            if name == "captions":
                values = [tuple(texts or ()) for texts in values]
            self._read[name] = _objects(values)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.table.column_names)

    def __len__(self) -> int:
        return len(self.table.column_names)


def write_clips(
    path: Path, clips: Iterable[Clip], reasons: Sequence[str | None], windows: bool = False
) -> None:
    """`reasons[i]` says why clip i was skipped; None where it was not. `windows`: rows may be parts
    of longer clips."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("label", pa.string()),
            ("fold", pa.int64()),
            ("group", pa.string()),
            ("captions", pa.list_(pa.string())),
            ("status", pa.string()),
            ("reason", pa.string()),
            *((("part_of", pa.string()), ("start_s", pa.float64())) if windows else ()),
        ]
    )
    with replacing(path) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        # a thousand at a time: clips made on demand need not all be in memory at once
        pairs = zip(clips, reasons, strict=True)
        while part := list(islice(pairs, _ROWS_AT_ONCE)):
            writer.write_table(pa.Table.from_pylist([_row(*pair) for pair in part], schema=schema))


def _row(clip: Clip, reason: str | None) -> dict[str, object]:
    return {
        "id": clip.id,
        "label": clip.label,
        "fold": clip.fold,
        "group": clip.group,
        "captions": list(clip.captions),
        "status": "ok" if reason is None else "skipped",
        "reason": reason,
        "part_of": clip.part_of,
        "start_s": clip.span and clip.span[0],
    }


def read_clips(path: Path, data: bytes | None = None) -> ClipTable:
    """The index in a file; `data` are its bytes, where somebody has read them already."""
    import pyarrow as pa

    try:
        table = read_parquet(path if data is None else data)
        there = [name for name in OF_WINDOWS if name in table.column_names]
        return ClipTable(_Unread(table.select([*COLUMNS, *there])))
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise StoreError(f"'{path}' is missing or damaged: {error}") from error


def read_skipped(path: Path, data: bytes) -> dict[str, str]:
    """Clip id → why it has no row; of a large index only those rows become objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        table = read_parquet(data, columns=["id", "status", "reason"])
        found = table.filter(pc.not_equal(table.column("status"), "ok"))
        return dict(
            zip(found.column("id").to_pylist(), found.column("reason").to_pylist(), strict=True)
        )
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise StoreError(f"'{path}' is missing or damaged: {error}") from error


def _objects(values: list[object]) -> Column:
    column = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):  # a slice assignment would unpack tuples
        column[i] = value
    return column
