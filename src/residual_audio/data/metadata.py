"""Reading metadata tables: every complaint names the file, what was found and what was expected."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from residual_audio.errors import DatasetError
from residual_audio.files import parse_json

Row = dict[str, str]


def read_csv(path: Path, columns: Sequence[str]) -> list[Row]:
    """Rows of a CSV file with a header, values exactly as written (spaces are part of names)."""
    as_it_was = csv.field_size_limit(10_000_000)  # a limit of the whole program
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _rows(path, csv.reader(file, strict=True), columns)
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"'{path}' is not UTF-8 text ({error.reason} at byte {error.start})"
        ) from None
    except csv.Error as error:
        raise DatasetError(f"'{path}' is not a readable CSV file: {error}") from None
    except OSError as error:
        raise DatasetError(f"cannot read '{path}': {error.strerror}") from None
    finally:
        csv.field_size_limit(as_it_was)


def _rows(path: Path, lines: Any, columns: Sequence[str]) -> list[Row]:
    header = _unique([name.strip() for name in next(lines, [])])
    if not any(header):
        raise DatasetError(f"'{path}' is empty; expected columns: {', '.join(columns)}")
    if lacking := [name for name in columns if name not in header]:
        raise DatasetError(
            f"'{path}' has no column {', '.join(lacking)}; "
            f"found: {', '.join(header)}; expected: {', '.join(columns)}"
        )
    rows = []
    for fields in lines:
        if not any(field.strip() for field in fields):
            continue  # blank lines at the end are common
        if len(fields) != len(header):
            raise DatasetError(
                f"'{path}' line {lines.line_num} has {len(fields)} fields, the header {len(header)}"
            )
        rows.append(dict(zip(header, fields, strict=True)))
    if not rows:
        raise DatasetError(f"'{path}' has a header but no rows")
    return rows


def _unique(header: Sequence[str]) -> list[str]:
    """A column that comes twice is named `x` and `x.1`, as pandas names it."""
    seen: dict[str, int] = {}
    names = []
    for name in header:
        seen[name] = seen.get(name, -1) + 1
        names.append(f"{name}.{seen[name]}" if seen[name] else name)
    return names


def read_jsonl(path: Path) -> list[dict[str, object]]:
    """One JSON object a line."""
    rows = []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise DatasetError(f"cannot read '{path}': {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DatasetError(f"'{path}' line {number} is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise DatasetError(f"'{path}' line {number} is not a JSON object: {line[:60]}")
        rows.append(row)
    if not rows:
        raise DatasetError(f"'{path}' is empty: expected one JSON object a line")
    return rows


def whole(path: Path, name: str, value: str) -> int:
    """A whole number of a column, which some tools write as 3.0."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise DatasetError(f"'{path}': '{value}' in column {name} is not a whole number")
    return int(number)
