"""A table: named columns of equal length, with what a reader needs to print and believe it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from residual_audio.drawing import Pictured, cell, data_frame, html_table
from residual_audio.errors import InputError
from residual_audio.files import harmless

if TYPE_CHECKING:
    import pandas

Column = npt.NDArray[Any]


SHOWN_ROWS, SHOWN_COLUMNS = 20, 10
"""What a table shows of itself at a prompt or in a notebook."""

_FORMULA = ("=", "+", "-", "@")


@dataclass(frozen=True, repr=False)
class Table(Pictured):
    """Columns in order; numbers are float64 (NaN = no value), the rest text or integers."""

    name: str
    """Also the stem of its file."""
    columns: Mapping[str, Column]
    caption: str = ""
    notes: tuple[str, ...] = field(default=())
    """What to know before believing a number: sample sizes, things left out and why."""
    ranked: str = ""
    """The column that the rows were chosen by, shown whatever else is."""

    def __post_init__(self) -> None:
        columns = {key: _as_column(values) for key, values in self.columns.items()}
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            sizes = ", ".join(f"{key} {len(values)}" for key, values in columns.items())
            raise InputError(f"columns of table '{self.name}' differ in length: {sizes}")
        object.__setattr__(self, "columns", columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> Column:
        try:
            return self.columns[column]
        except KeyError:
            raise InputError(
                f"table '{self.name}' has no column '{column}'; it has: {', '.join(self.columns)}"
            ) from None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Row by row, as Python values."""
        lists = {key: values.tolist() for key, values in self.columns.items()}
        for i in range(len(self)):
            yield {key: values[i] for key, values in lists.items()}

    def where(self, keep: npt.ArrayLike | slice) -> Table:
        """The rows selected by a mask, by indices or by a slice."""
        chosen = keep if isinstance(keep, slice) else np.asarray(keep)
        columns = {key: values[chosen] for key, values in self.columns.items()}
        return replace(self, columns=columns)

    def top(self, column: str, n: int = 10, lowest: bool = False) -> Table:
        """The n rows with the highest (or lowest) values of a column; rows without one are last.

        >>> Table("heads", {"head_id": ["a", "b"], "pr": [1.0, 2.0]}).top("pr", 1)["head_id"][0]
        'b'
        """
        values = self[column]
        if values.dtype.kind not in "fiub":
            raise InputError(f"column '{column}' of table '{self.name}' holds text: no order")
        keys = values.astype(np.float64) * (1 if lowest else -1)
        best = self.where(np.argsort(keys, kind="stable")[: max(n, 0)])  # NaN sorts last
        none = len(self) > 0 and bool(np.isnan(keys).all())
        notes = (*self.notes, f"no row has a value of {column}: there is no order") if none else ()
        return replace(best, ranked=column, notes=notes or self.notes)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame; caption and notes are in its `attrs`."""
        frame = data_frame(self.columns)
        frame.attrs |= {"name": self.name, "caption": self.caption, "notes": list(self.notes)}
        return frame

    def __repr__(self) -> str:
        """Caption, the first rows and columns, and how many there are."""
        header, rows = self._shown()
        widths = [max(map(len, cells)) for cells in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(pairs)).rstrip()
            for pairs in (list(zip(cells, widths, strict=True)) for cells in (header, *rows))
        ]
        return "\n".join([self._title(), *lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        header, rows = self._shown()
        return html_table(self._title(), header, rows, self.notes)

    def _title(self) -> str:
        size = f"{len(self)} rows × {len(self.columns)} columns"
        return f"{self.name}: {self.caption} ({size})" if self.caption else f"{self.name} ({size})"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """Header and cells of the corner that is shown, with … where there is more."""
        names = self._first_columns()
        more = ["…"] if len(self.columns) > SHOWN_COLUMNS else []
        first = self.where(slice(0, SHOWN_ROWS)) if len(self) > SHOWN_ROWS else self
        rows = [[cell(row[name]) for name in names] + more for row in first.rows()]
        if len(self) > SHOWN_ROWS:
            rows.append(["…"] * (len(names) + len(more)))
        return names + more, rows

    def _first_columns(self) -> list[str]:
        """The first, what the rows were chosen by with its interval, and others up to the limit."""
        ends = (self.ranked, f"{self.ranked}_low", f"{self.ranked}_high")
        names = list(self.columns)
        wanted = [name for name in ends if name in self.columns and name != names[0]]
        return list(dict.fromkeys([*names[:1], *wanted, *names]))[:SHOWN_COLUMNS]


def _as_column(values: Sequence[object] | Column) -> Column:
    column = np.asarray(values)
    if column.ndim != 1:
        raise InputError(f"a column has one axis, got shape {column.shape}")
    if column.dtype.kind == "f":
        return column.astype(np.float64)
    if column.dtype.kind in "USO":
        return np.array(["" if v is None else str(v) for v in column.tolist()], dtype=object)
    return column


def from_rows(
    name: str,
    rows: Sequence[Mapping[str, object]],
    caption: str = "",
    notes: tuple[str, ...] = (),
) -> Table:
    """A table from rows; a key that a row lacks is NaN there."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = {key: np.array([row.get(key, np.nan) for row in rows]) for key in keys}
    return Table(name, columns, caption, notes)


def csv_text(text: str) -> str:
    """Text as a CSV cell that no spreadsheet takes for a formula: what begins with = + - or @ gets
    an apostrophe before it, which `read_csv` takes off again; control characters are spelt out."""
    text = harmless(text)
    return f"'{text}" if text.startswith(_FORMULA) or _is_quoted(text) else text


def _is_quoted(text: str) -> bool:
    """An apostrophe that would be taken off."""
    rest = text.lstrip("'")
    return rest != text and rest.startswith(_FORMULA)


def read_csv(path: Path, name: str | None = None) -> Table:
    """A column is numeric when every filled cell of it is; empty cells are NaN there."""
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except OSError as error:
        raise InputError(f"cannot read the table '{path}': {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"'{path}' is not a CSV table: {error}") from None
    if not rows:
        raise InputError(f"the table '{path}' is empty")
    header, body = [cell.strip() for cell in rows[0]], rows[1:]
    if len(set(header)) != len(header):
        raise InputError(f"the table '{path}' names a column twice: {', '.join(header)}")
    for i, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise InputError(f"row {i} of '{path}' has {len(row)} cells, the header {len(header)}")
    columns = {
        key: _parse([row[j][1:] if _is_quoted(row[j]) else row[j] for row in body])
        for j, key in enumerate(header)
    }
    return Table(name or path.stem, columns)


def _parse(cells: list[str]) -> Column:
    stripped = [cell.strip() for cell in cells]
    filled = [cell for cell in stripped if cell and cell.lower() != "nan"]
    try:
        numbers = [float(cell) for cell in filled]
    except ValueError:
        return np.array(stripped, dtype=object)
    if not any(stripped):
        return np.array(stripped, dtype=object)
    if len(filled) == len(cells) and all(c.lstrip("-").isdigit() for c in filled):
        return np.array([int(cell) for cell in filled])
    known = iter(numbers)
    return np.array([next(known) if c and c.lower() != "nan" else np.nan for c in stripped])
