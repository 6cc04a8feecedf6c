"""Figures of encoders with one stage, and of runs with too few clips for some numbers."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from residual_audio.report.figures_ablation import block_ablation
from residual_audio.report.figures_attention import streams
from residual_audio.report.figures_stages import dimension_against_scale
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import save, styled
from residual_audio.report.table_files import write_csv
from residual_audio.table import from_rows


def ablated(run: Path, stages: list[int]) -> Tables:
    """Four blocks of three heads, in these stages."""
    rows = [
        {"unit": f"s{s}.b{b}.h{h}", "stage": s, "block_index": b, "d_margin": 0.1 * b - 0.05 * h,
         "d_margin_low": -1.0, "d_margin_high": 1.0}
        for b, s in enumerate(stages) for h in range(3)
    ]  # fmt: skip
    blocks = [{**row, "unit": f"s.b{row['block_index']}"} for row in rows[::3]]
    for name, those in (("ablation_head_direct", rows), ("ablation_attention_direct", blocks)):
        write_csv(run / "tables" / f"{name}.csv", from_rows(name, those))
    return Tables(run)


@pytest.mark.parametrize(
    ("stages", "name", "ticks"),
    [([0, 0, 0, 0], "block", ["0", "1", "2", "3"]), ([0, 0, 1, 1], "stage", ["s0", "s1"])],
)
def test_heads_by_block_where_there_is_one_stage(
    tmp_path: Path, stages: list[int], name: str, ticks: list[str]
) -> None:
    with styled():
        spread = block_ablation(ablated(tmp_path, stages)).axes[2]
        assert spread.get_xlabel() == name
        assert [tick.get_text() for tick in spread.get_xticklabels()] == ticks


def test_what_few_clips_cannot_tell_is_left_out_without_a_warning(tmp_path: Path) -> None:
    units = [
        {"unit": f"blocks/s{s}.b0/{part}", "kind": "blocks", "pca_99": 3.0 + s, "pr": 1.5,
         "twonn": np.nan}
        for s in (0, 1) for part in ("attention", "mlp", "stream")
    ]  # fmt: skip
    heads = [
        {"stage": s, "gride_1": 2.0 + s, "gride_2": np.nan if s else 3.0, "gride_4": 1.0,
         "gride_8": np.nan}
        for s in (0, 1)
    ]  # fmt: skip
    write_csv(tmp_path / "tables" / "units.csv", from_rows("units", units))
    write_csv(tmp_path / "tables" / "heads.csv", from_rows("heads", heads))
    tables = Tables(tmp_path)
    with styled(), warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = streams(tables)
        assert [axes.get_title("left") for axes in drawn.axes] == ["PCA 99%", "Participation ratio"]
        save(drawn, tmp_path / "streams.png")
        scale = dimension_against_scale(tables)
        assert len(scale.axes[0].get_xticks()) == 3
        save(scale, tmp_path / "scale.png")


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    row = {"unit": "blocks/s0.b0/mlp", "kind": "blocks", "pca_99": np.nan, "pr": np.nan}
    write_csv(tmp_path / "tables" / "units.csv", from_rows("units", [{**row, "twonn": np.nan}]))
    with styled(), pytest.raises(MissingTable, match="so few clips"):
        streams(Tables(tmp_path))
