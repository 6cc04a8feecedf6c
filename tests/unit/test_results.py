"""Result files: valid JSON, read back as written, whole or not there."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from residual_audio import results as files
from residual_audio.errors import InputError
from residual_audio.types import Result, Score


def _result(**changes: object) -> Result:
    given = {
        "task": "zero-shot",
        "model": "laion:/home/ann/x.pt",
        "dataset": "esc50",
        "split": "fold 4",
        "scores": (
            Score("top1", 0.5, 0.4, 0.6, 10, 0.02),
            Score("ece", math.nan, math.nan, math.inf, 0, None),
        ),
        "per_item": {"id": ["a", "b"], "rank": [1, 2], "fold": [None, 3]},
        "provenance": {"seed": 0},
        "details": {"confusion": np.eye(2, dtype=int), "p": np.float32(0.5)},
    }
    return Result(**(given | changes))  # type: ignore[arg-type]


def test_round_trip(tmp_path: Path) -> None:
    path = files.write_result(_result(), tmp_path / "results", items=True)
    assert path.name == "zero-shot_laion-x.pt_esc50_fold-4.json"
    document = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert document["schema_version"] == 1
    assert document["scores"][0] == {
        "name": "top1", "value": 0.5, "low": 0.4, "high": 0.6, "n": 10, "chance": 0.02,
    }  # fmt: skip
    assert document["scores"][1]["value"] is None
    assert "/home" not in path.read_text()
    table = pq.read_table(path.parent / document["per_item_file"])
    assert table.column("rank").to_pylist() == [1, 2]
    assert table.column("fold").to_pylist() == [None, 3]
    back = files.read_result(path)
    assert back["top1"] == Score("top1", 0.5, 0.4, 0.6, 10, 0.02)
    assert math.isnan(back["ece"].value)
    assert back.details["confusion"] == [[1, 0], [0, 1]]
    with pytest.raises(InputError, match="no score 'top9'; there are: top1, ece"):
        back["top9"]


def test_items_are_left_out_unless_asked(tmp_path: Path) -> None:
    path = files.write_result(_result(), tmp_path / "r.json")
    assert json.loads(path.read_text())["per_item"] is None
    assert not list(tmp_path.glob("*.parquet"))


def test_reading_folders_passes_over_other_json(tmp_path: Path) -> None:
    files.write_result(_result(), tmp_path / "run" / "results")
    files.write_result(_result(model="b"), tmp_path / "run" / "results")
    (tmp_path / "run" / "run.json").write_text('{"something": "else"}')
    (tmp_path / "run" / "list.json").write_text("[1, 2]")
    found = files.read_results([tmp_path / "run"])
    assert sorted(r.model for r in found) == ["b", "laion:…/x.pt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable JSON"),
        ("[]", "not a result"),
        ('{"schema_version": 9, "task": "x", "scores": [], "model": "m"}', "schema_version 9"),
        ('{"schema_version": 1, "task": "x", "scores": [{}], "model": "m"}', "not a result"),
    ],
)
def test_files_that_are_no_results(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        files.read_results([path])
    with pytest.raises(InputError, match="no file"):
        files.read_result(tmp_path / "absent.json")


def test_slug() -> None:
    assert files.slug("hf:laion/clap htsat") == "hf-laion-clap-htsat"
    assert files.slug("../..") == "unnamed"
