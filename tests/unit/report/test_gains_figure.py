"""The figure of gains: every unit that can be reweighted has its bar, not only heads."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from residual_audio.errors import InputError
from residual_audio.report.figures_adaptation import gains_by_head
from residual_audio.report.run_tables import Tables
from residual_audio.report.style import NEUTRAL, STAGE_COLOURS, styled
from residual_audio.report.table_files import write_csv
from residual_audio.table import from_rows


def tables_with(run: Path, units: list[str]) -> Tables:
    rows = [
        {"fold": fold, "unit": unit, "moved": 0.1 * i + fold, "mean_gain": 1.0 + i}
        for fold in (0, 1)
        for i, unit in enumerate(units)
    ]
    write_csv(run / "tables" / "gains_units.csv", from_rows("gains_units", rows))
    return Tables(run)


def test_heads_sites_stages_and_the_output_have_bars_of_their_stage(tmp_path: Path) -> None:
    units = ["s0.b0.h1", "s2.b5.attention", "s2.b5.mlp", "s1", "output"]
    with styled():
        top, bottom = gains_by_head(tables_with(tmp_path, units)).axes
        bars = top.patches
        assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [
            STAGE_COLOURS[0], STAGE_COLOURS[2], STAGE_COLOURS[2], STAGE_COLOURS[1], NEUTRAL,
        ]  # fmt: skip
        assert [bar.get_height() for bar in bars] == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9])
        assert [bar.get_height() for bar in bottom.patches] == pytest.approx([0, 1, 2, 3, 4])
        assert [label.get_text() for label in bottom.get_xticklabels()] == units


def test_what_is_no_unit_is_refused_by_name(tmp_path: Path) -> None:
    with styled(), pytest.raises(InputError, match="'banana' is no unit"):
        gains_by_head(tables_with(tmp_path, ["banana"]))
