"""Results on disk: one JSON a (task, model, data set), valid JSON, all there or not there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from residual_audio import provenance
from residual_audio.errors import InputError
from residual_audio.files import json_ready, read_json, write_json, write_parquet
from residual_audio.seals import prove_document, sealed
from residual_audio.types import Result, Score

SCHEMA_VERSION = 1


def result_to_dict(result: Result, *, items: bool = True) -> dict[str, object]:
    """The document that is written; `items` False leaves the per-item columns out."""
    document = {
        "schema_version": result.schema_version,
        "task": result.task,
        # a model may be a path on somebody's machine
        "model": provenance.without_machine_paths(result.model),
        "dataset": result.dataset,
        "split": result.split,
        "scores": [
            {
                "name": score.name,
                "value": score.value,
                "low": score.low,
                "high": score.high,
                "n": score.n,
                "chance": score.chance,
            }
            for score in result.scores
        ],
        "details": result.details,
        "per_item": result.per_item if items else None,
        "provenance": result.provenance,
    }
    return json_ready(document)


def result_from_dict(document: Mapping[str, Any], where: str = "the document") -> Result:
    """Back from JSON: null becomes NaN where a number belongs."""
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"{where} has schema_version {version}, this version reads {SCHEMA_VERSION}"
        )
    try:
        scores = tuple(
            Score(
                str(row["name"]),
                _number(row["value"]),
                _number(row["low"]),
                _number(row["high"]),
                int(row["n"]),
                None if row.get("chance") is None else float(row["chance"]),
            )
            for row in document["scores"]
        )
        return Result(
            task=str(document["task"]),
            model=str(document["model"]),
            dataset=str(document["dataset"]),
            split=str(document["split"]),
            scores=scores,
            per_item=document.get("per_item"),
            provenance=document.get("provenance") or {},
            schema_version=version,
            details=document.get("details") or {},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where} is not a result: {error!r} is missing or wrong") from error


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def result_name(result: Result) -> str:
    """`zero-shot_nano_esc50_fold-4`: what distinguishes it, fit for a file name."""
    model = provenance.without_machine_paths(result.model)
    parts = [result.task, model, result.dataset, result.split]
    return "_".join(slug(part) for part in parts if part and part != "all")


def slug(text: str) -> str:
    """Letters, digits, dot and hyphen; never empty, never hidden."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-._") or "unnamed"


def write_result(result: Result, path: Path, *, items: bool = False) -> Path:
    """Write one result; `path` may be a folder. `items` puts the items in a parquet beside it."""
    if path.suffix != ".json":
        path = path / f"{result_name(result)}.json"
    document = result_to_dict(result, items=False)
    if items and result.per_item is not None:
        table = path.with_suffix(".items.parquet")
        write_items(result.per_item, table)
        document["per_item_file"] = table.name
    write_json(path, sealed(document))
    return path


def write_items(columns: Mapping[str, list[object]], path: Path) -> None:
    """Per-item columns as parquet."""
    import pyarrow as pa

    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    write_parquet(path, table)


def read_result(path: Path) -> Result:
    """One result file."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise InputError(f"'{path}' holds a {type(document).__name__}, not a result")
    prove_document(document, path)
    return result_from_dict(document, f"'{path}'")


def read_results(paths: Iterable[Path]) -> list[Result]:
    """Results of files and of folders (a run's `results`, or a folder of them), in order of name.

    Other JSON files in a folder are passed over; a file that is named must be a result.
    """
    found = []
    for path in paths:
        if path.is_dir():
            for file in sorted(path.rglob("*.json")):
                document = read_json(file)
                if isinstance(document, dict) and {"task", "scores", "model"} <= set(document):
                    prove_document(document, file)
                    found.append(result_from_dict(document, f"'{file}'"))
        else:
            found.append(read_result(path))
    return found
