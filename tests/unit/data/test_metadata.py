"""Tables of metadata: long cells are read, and the program around keeps its limits."""

from __future__ import annotations

import csv
from pathlib import Path

from residual_audio.data.metadata import read_csv


def test_a_long_cell_is_read_and_the_limit_of_the_program_stays(tmp_path: Path) -> None:
    table = tmp_path / "clips.csv"
    table.write_text("path,caption\na.wav," + "x" * 200_000 + "\n")
    before = csv.field_size_limit()
    assert len(read_csv(table, ["path", "caption"])[0]["caption"]) == 200_000
    assert csv.field_size_limit() == before
