"""Vectors of files on disk, in the format that the name asks for, with what made them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from residual_audio.embeddings.embedder import Vectors
from residual_audio.errors import InputError
from residual_audio.files import write_json, write_npz, write_parquet, write_safetensors, write_text
from residual_audio.table import csv_text

Writer = Callable[[Path, Vectors, Sequence[str], Mapping[str, Any]], object]
"""Path, vectors [n, d], the file of each row, provenance."""


def find_writer(path: Path) -> Writer:
    """By suffix; any other is refused before work begins."""
    found = WRITERS.get(path.suffix.lower())
    if found is None:
        raise InputError(f"'{path}' does not say what to write: end it in {', '.join(WRITERS)}")
    return found


def _safetensors(
    path: Path, vectors: Vectors, files: Sequence[str], made: Mapping[str, object]
) -> None:
    header = {"files": json.dumps(list(files), ensure_ascii=False), "provenance": json.dumps(made)}
    write_safetensors(path, {"embeddings": vectors}, header)


def _npz(path: Path, vectors: Vectors, files: Sequence[str], made: Mapping[str, object]) -> None:
    arrays = {"embeddings": vectors, "files": np.array(files, dtype=np.str_)}
    write_npz(path, arrays | {"provenance": np.array(json.dumps(made))})


def _parquet(
    path: Path, vectors: Vectors, files: Sequence[str], made: Mapping[str, object]
) -> None:
    import pyarrow as pa

    flat = pa.array(vectors.astype(np.float32).ravel())
    rows = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    table = pa.table({"file": pa.array(list(files)), "embedding": rows})
    write_parquet(path, table.replace_schema_metadata({"provenance": json.dumps(made)}))


def _csv(path: Path, vectors: Vectors, files: Sequence[str], made: Mapping[str, object]) -> None:
    """One column a dimension; a CSV has no header to put provenance in, so it lies beside it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["file", *(f"e{i}" for i in range(vectors.shape[1]))])
    for file, row in zip(files, vectors, strict=True):
        writer.writerow([csv_text(file), *(f"{value:.9g}" for value in row)])  # float32, exactly
    write_text(path, text.getvalue())
    write_json(path.with_suffix(".provenance.json"), made)


WRITERS: dict[str, Writer] = {
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".csv": _csv,
    ".parquet": _parquet,
}
