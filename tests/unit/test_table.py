"""A table selects, sorts, shows itself and becomes a data frame."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from residual_audio.errors import InputError, MissingExtraError
from residual_audio.table import SHOWN_ROWS, Table


@pytest.fixture
def table() -> Table:
    columns = {"head_id": ["a", "<b>", "c"], "pr": [1.0, np.nan, 3.5], "n": [3, 2, 1]}
    return Table("heads", columns, "Heads & more.", ("a <note>",))


def test_top_is_highest_first_and_rows_without_a_value_are_last(table: Table) -> None:
    assert table.top("pr", 2)["head_id"].tolist() == ["c", "a"]
    assert table.top("pr", 9, lowest=True)["head_id"].tolist() == ["a", "c", "<b>"]
    assert table.top("n", 1).notes == table.notes
    assert len(table.top("pr", 0)) == 0
    with pytest.raises(InputError, match="holds text"):
        table.top("head_id")
    with pytest.raises(InputError, match="it has: head_id, pr, n"):
        table.top("nonsense")


def test_where_takes_masks_indices_and_slices(table: Table) -> None:
    for keep in (table["n"] < 3, [1, 2], slice(1, None)):
        assert [row["n"] for row in table.where(keep).rows()] == [2, 1]


def test_text_says_caption_cells_and_notes(table: Table) -> None:
    lines = repr(table).splitlines()
    assert lines[0] == "heads: Heads & more. (3 rows × 3 columns)"
    assert lines[1].split() == ["head_id", "pr", "n"]
    assert lines[3].split() == ["<b>", "–", "2"]
    assert lines[-1] == "note: a <note>"
    assert repr(Table("none", {})) == "none (0 rows × 0 columns)\n"


def test_long_and_wide_tables_say_that_there_is_more() -> None:
    wide = Table("wide", {f"c{i}": np.arange(50) for i in range(30)})
    lines = repr(wide).splitlines()
    assert len(lines) == SHOWN_ROWS + 3
    assert lines[1].endswith("…")
    assert set(lines[-1].split()) == {"…"}


def test_html_is_escaped(table: Table) -> None:
    html = table._repr_html_()
    assert "&lt;b&gt;" in html
    assert "Heads &amp; more." in html
    assert "a &lt;note&gt;" in html
    assert "<b>" not in html


def test_a_data_frame_keeps_columns_and_notes(table: Table) -> None:
    frame = table.to_pandas()
    assert frame.columns.tolist() == ["head_id", "pr", "n"]
    assert frame["pr"].isna().tolist() == [False, True, False]
    assert frame.attrs["notes"] == ["a <note>"]


def test_without_pandas_the_extra_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pandas"):
        table.to_pandas()
