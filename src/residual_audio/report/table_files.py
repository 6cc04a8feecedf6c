"""Tables on disk: CSV that reads back the same, and Parquet for the long ones."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio import files
from residual_audio.table import Table, csv_text


def write_csv(path: Path, table: Table) -> Path:
    """Numbers in full, so that reading it back gives the same table; no value is an empty cell.

    In a column without any value the cells say "nan", or it would come back as text.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(table.columns)
    absent = {
        key: "nan" if values.dtype.kind == "f" and np.isnan(values).all() else ""
        for key, values in table.columns.items()
    }
    for row in table.rows():
        writer.writerow([_cell(value, absent[key]) for key, value in row.items()])
    return files.write_bytes(path, buffer.getvalue().encode())


def _cell(value: object, absent: str) -> Any:
    if isinstance(value, float):
        return absent if np.isnan(value) else repr(value)
    if isinstance(value, bool):
        return int(value)
    return csv_text(value) if isinstance(value, str) else value


def write_parquet(path: Path, table: Table) -> Path:
    """Columns as they are; notes and caption travel in the metadata."""
    import pyarrow as pa

    arrays = {
        key: pa.array(values.tolist() if values.dtype == object else values)
        for key, values in table.columns.items()
    }
    found = pa.table(arrays).replace_schema_metadata(
        {"caption": table.caption, "notes": json.dumps(list(table.notes))}
    )
    return files.write_parquet(path, found)


def read_parquet(path: Path) -> Table:
    """What `write_parquet` wrote."""
    found = files.read_parquet(path)
    meta = {k.decode(): v.decode() for k, v in (found.schema.metadata or {}).items()}
    columns = {name: np.array(found[name].to_pylist()) for name in found.column_names}
    notes = tuple(json.loads(meta.get("notes", "[]")))
    return Table(path.stem, columns, meta.get("caption", ""), notes)
