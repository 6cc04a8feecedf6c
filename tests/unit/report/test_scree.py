"""The scree plot: one line a stage, or a block where there is one stage; shares end at one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from residual_audio.report.figures_scree import scree
from residual_audio.report.run_tables import MissingTable, Tables
from residual_audio.report.style import styled
from residual_audio.report.table_files import write_csv
from residual_audio.table import Table


def tables(folder: Path, names: list[str]) -> Tables:
    shares = np.array([0.5, 0.3, 0.2])
    heads = {
        "head_id": names,
        "stage": [int(name[1]) for name in names],
        "block": [int(name[4]) for name in names],
    }
    spectra = {
        "head_id": np.repeat(names, 3),
        "space": ["raw"] * 3 * len(names),
        "component": np.tile([1, 2, 3], len(names)),
        "share": np.tile(shares, len(names)),
    }
    write_csv(folder / "tables" / "heads.csv", Table("heads", heads))
    write_csv(folder / "tables" / "spectra.csv", Table("spectra", spectra))
    return Tables(folder)


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["s0.b0.h0", "s0.b1.h0", "s1.b0.h0"], ["s0 (2 heads)", "s1 (1 heads)"]),
        (["s0.b0.h0", "s0.b1.h0"], ["b0 (1 heads)", "b1 (1 heads)"]),
    ],
)
def test_one_line_a_group_up_to_all_of_the_variance(
    names: list[str], groups: list[str], tmp_path: Path
) -> None:
    with styled():
        falling, kept = scree(tables(tmp_path, names)).axes
        assert [line.get_label() for line in falling.lines] == groups
        np.testing.assert_allclose(falling.lines[0].get_ydata(), [0.5, 0.3, 0.2])
        np.testing.assert_allclose(kept.lines[0].get_ydata(), [0.5, 0.8, 1.0])


def test_without_spectra_it_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    with styled(), pytest.raises(MissingTable, match="spectra"):
        scree(Tables(tmp_path))
