"""Figures of patching show what was asked for, with its intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import FillBetweenPolyCollection

from residual_audio.report.figures_patching import patching_heads, patching_sets, patching_time
from residual_audio.report.run_tables import Tables
from residual_audio.report.table_files import write_csv
from residual_audio.table import from_rows


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    numbers = {"effect_by_gap": 0.2, "effect_by_gap_low": 0.1, "effect_by_gap_high": 0.4}
    heads = [
        {"unit": f"s3.b{b}.h{h}", "stage": 3, "block": b, "head": h, "block_index": 10 + b, "q": 1}
        for b in (0, 1)
        for h in range(4)
    ]
    found = (
        from_rows("patching_units_exact", [row | numbers for row in heads]),
        from_rows("patching_sets", [{"order": "greedy", "units": k, **numbers} for k in (1, 2, 3)]),
        from_rows(
            "patching_time",
            [{"unit": "s0.b0.stream", "start_s": k, "end_s": k + 1, **numbers} for k in (0, 1)],
        ),
    )
    (tmp_path / "tables").mkdir()
    for table in found:
        write_csv(tmp_path / "tables" / f"{table.name}.csv", table)
    return Tables(tmp_path)


def test_only_blocks_that_were_patched_have_a_row(tables: Tables) -> None:
    ax = patching_heads(tables).axes[0]
    assert ax.images[0].get_array().shape == (2, 4)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["s3.b0", "s3.b1"]


@pytest.mark.parametrize("figure", [patching_sets, patching_time])
def test_curves_have_their_intervals(figure, tables: Tables) -> None:
    ax = figure(tables).axes[0]
    (band,) = [c for c in ax.collections if isinstance(c, FillBetweenPolyCollection)]
    heights = band.get_paths()[0].vertices[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [0.1, 0.4])
