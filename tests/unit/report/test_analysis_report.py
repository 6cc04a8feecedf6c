"""Tables in print and figures: rounding, escaping, reading back, drawing from tables alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from analysis_store import FakeStore
from typer.testing import CliRunner

from residual_audio.analysis.aggregate import complete_head_table, read_head_table
from residual_audio.analysis.analysis import Options, analyse
from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.report import figures
from residual_audio.report.run_tables import Tables
from residual_audio.report.style import styled
from residual_audio.report.table_files import read_parquet, write_csv, write_parquet
from residual_audio.report.typesetting import latex, latex_text, markdown, number, p_value
from residual_audio.report.write import write_analysis
from residual_audio.table import Table, from_rows, read_csv

ANALYSIS = {
    "head_panels", "head_panels_projected", "block_heatmap", "progression", "pc1_dominance",
    "boxplots", "spectral_fingerprints", "entropy_vs_dimension", "head_similarity", "head_cka",
    "head_subspaces", "fingerprint_map", "class_activation", "fisher", "attention_maps",
    "pooling", "streams", "dimension_vs_clips", "dimension_vs_scale",
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "decimals", "ties", "text"),
    [
        (16.25, 1, "up", "16.3"),
        (16.25, 1, "even", "16.2"),
        (18.625, 2, "even", "18.62"),
        (6.205, 2, "up", "6.21"),  # a tie, though its binary form is a little above or below
        (1.005, 2, "up", "1.01"),
        (-0.5, 0, "up", "-1"),
        (2.0, 1, "up", "2.0"),
        (float("nan"), 1, "up", "–"),
        (float("inf"), 1, "up", "–"),
    ],
)
def test_numbers_in_print(value: float, decimals: int, ties: str, text: str) -> None:
    assert number(value, decimals, ties) == text  # type: ignore[arg-type]


def test_text_is_safe_in_latex_and_markdown() -> None:
    assert latex_text("a_b & 50% #1 {x} ~ ^ \\") == (
        r"a\_b \& 50\% \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{}"
    )
    assert latex_text("1 ± 2 < 3") == r"1 $\pm$ 2 $<$ 3"
    text = latex(["A", "$B$"], [["x_1", "2"]], "50% of", "tab:x")
    assert r"\caption{50\% of}" in text
    assert r"x\_1 & 2 \\" in text
    assert markdown(["a", "b"], [["x|y", "1"]]).splitlines()[2] == r"| x\|y | 1 |"
    assert p_value(1e-9) == "< 0.001"
    assert p_value(0.0415) == "0.042"


def test_csv_comes_back_as_it_went(tmp_path: Path) -> None:
    table = Table(
        "t",
        {
            "name": np.array(["a, b", 'quo"te', "ünï"], dtype=object),
            "n": np.array([1, 2, 3]),
            "x": np.array([0.1, np.nan, 1e-300]),
            "empty": np.array(["", "", ""], dtype=object),
            "nothing": np.full(3, np.nan),
        },
    )
    back = read_csv(write_csv(tmp_path / "t.csv", table))
    assert list(back.columns) == list(table.columns)
    np.testing.assert_array_equal(back["x"], table["x"])
    np.testing.assert_array_equal(back["nothing"], table["nothing"])
    assert back["empty"].tolist() == ["", "", ""]
    assert back["name"].tolist() == table["name"].tolist()
    assert back["n"].dtype.kind == "i"
    whole = read_parquet(write_parquet(tmp_path / "t.parquet", table))
    np.testing.assert_array_equal(whole["x"], table["x"])


def test_bad_tables_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "heads.csv"
    cases = {
        "": "empty",
        "head_id,pca_99\n": "no heads",
        "name,pca_99\ns0.b0.h0,3\n": "no column 'head_id'",
        "head_id,colour\ns0.b0.h0,red\n": "none of the known metrics",
        "head_id,pca_99\nbanana,3\n": "'banana' is not a head",
        "head_id,pca_99\nL0_B0_H0,3\ns0.b0.h0,3\n": "twice",
        "head_id,pca_99\ns0.b0.h0,3,4\n": "row 2",
        "head_id,pr,pr\ns0.b0.h0,3,4\n": "column twice",
    }
    for text, message in cases.items():
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_head_table(path)
    with pytest.raises(InputError, match="cannot read"):
        read_head_table(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="differ in length"):
        Table("t", {"a": np.zeros(2), "b": np.zeros(3)})
    with pytest.raises(InputError, match="no column 'z'"):
        _ = Table("t", {"a": np.zeros(2)})["z"]


def test_heads_are_put_in_order_of_computation() -> None:
    table = Table(
        "heads",
        {
            "head_id": np.array(["L2_B10_H0", "L2_B2_H3", "L0_B0_H1"], dtype=object),
            "pca_99": np.array([1.0, 2, 3]),
            "twonn": np.array([2.0, 0, np.nan]),
        },
    )
    done = complete_head_table(table)
    assert done["head_id"].tolist() == ["s0.b0.h1", "s2.b2.h3", "s2.b10.h0"]
    assert done["block_index"].tolist() == [0, 1, 2]
    assert done["pca_99"].tolist() == [3.0, 2.0, 1.0]
    assert done["ln_ratio"][2] == 0.5
    assert from_rows("t", [{"a": 1.0}, {"b": 2.0}])["a"].tolist()[0] == 1.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    parts = frozenset(
        {"projected", "units", "similarity", "separability", "attention", "pooling", "curves"}
    )
    write_analysis(analyse(FakeStore(), Options(parts=parts)), folder)
    return folder


def test_every_figure_is_drawn_from_tables(run: Path) -> None:
    written = figures.draw_all(run)
    assert {p.stem for p in written} >= ANALYSIS
    assert set(figures.FIGURES) >= ANALYSIS
    assert {p.suffix for p in written} == {".png", ".pdf"}
    assert all(p.stat().st_size > 2000 for p in written)
    assert [p for p in (run / "figures").iterdir() if p.name.startswith(".")] == []


def test_two_processes_draw_what_one_draws(run: Path) -> None:
    names = ["boxplots", "fisher", "few_shot"]  # the last has no table here
    alone = {p.name: p.read_bytes() for p in figures.draw_all(run, names, formats=("png",))}
    both = figures.draw_all(run, names, formats=("png",), processes=2)
    assert [p.name for p in both] == ["boxplots.png", "fisher.png"]
    assert {p.name: p.read_bytes() for p in both} == alone


def test_figures_are_column_or_page_wide_and_the_same_every_time(run: Path) -> None:
    from PIL import Image

    first = [path.read_bytes() for path in figures.draw_all(run, ["boxplots"])]
    assert [path.read_bytes() for path in figures.draw_all(run, ["boxplots"])] == first
    figures.draw_all(run)
    for path in (run / "figures").glob("*.png"):
        width = Image.open(path).size[0] / 300
        assert width in (pytest.approx(3.5, abs=0.01), pytest.approx(7.0, abs=0.01))


def test_a_bare_table_gives_the_figures_it_can(tmp_path: Path) -> None:
    table = tmp_path / "heads.csv"
    rows = [f"s{s}.b0.h{h},{2 + s + h % 2},{1.5 + s}" for s in range(2) for h in range(4)]
    table.write_text("head_id,pca_99,twonn\n" + "\n".join(rows))
    done = CliRunner().invoke(
        build(),
        ["analyse", "--from-table", str(table), "--out", str(tmp_path / "out"), "--json"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert "figures/head_panels.png" in found["files"]
    assert not figures.draw_all(tmp_path / "out", ["class_activation"])


def test_what_cannot_be_drawn_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no figure 'pie'"):
        figures.draw_all(run, ["pie"])
    with pytest.raises(InputError, match="has no tables"):
        Tables(tmp_path)
    with pytest.raises(InputError, match="no table 'poems'"):
        _ = Tables(run)["poems"]


def test_the_command_wants_one_source(tmp_path: Path) -> None:
    done = CliRunner().invoke(build(), ["analyse"])
    assert done.exit_code == 2
    assert "--from-table" in done.output


def test_nothing_under_the_panels_lies_on_the_legend(run: Path) -> None:
    with styled():
        figure = figures.FIGURES["head_panels"].draw(Tables(run))
        figure.canvas.draw()
        legend = figure.legends[0].get_window_extent()
        assert figure.legends[0].get_title().get_text() == "head, in order of computation"
        others = [text for text in figure.texts if text.get_text()]
        assert not any(legend.overlaps(text.get_window_extent()) for text in others)
        assert not any(legend.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_asking_for_less_takes_nothing_of_what_was_there(tmp_path: Path) -> None:
    store = FakeStore()
    write_analysis(analyse(store, Options(umap=False)), tmp_path)
    whole = Tables(tmp_path)
    before = {name: set(whole[name].columns) for name in ("heads", "blocks", "stages")}
    spaces, statistics = set(whole["spectra"]["space"]), set(whole.statistics)
    assert "fisher_trace" in before["heads"]
    assert "projected" in spaces
    write_analysis(analyse(store, Options(parts=frozenset())), tmp_path)
    after = Tables(tmp_path)
    assert {name: set(after[name].columns) for name in before} == before
    assert set(after["spectra"]["space"]) == spaces
    assert set(after.statistics) == statistics
    assert "fisher_trace" in after.statistics["metrics"]


def test_what_is_of_other_heads_is_not_kept(tmp_path: Path) -> None:
    full = analyse(FakeStore(), Options(umap=False))
    write_analysis(full, tmp_path)
    small = analyse(FakeStore(), Options(parts=frozenset()))
    other = small.heads.columns | {"pca_99": small.heads["pca_99"] + 1}
    changed = replace(small, tables={**small.tables, "heads": Table("heads", other)})
    write_analysis(changed, tmp_path)
    assert "fisher_trace" not in Tables(tmp_path)["heads"]


def test_an_analysis_that_was_killed_before_its_statistics_does_not_stop_the_next(
    tmp_path: Path,
) -> None:
    analysis = analyse(FakeStore(), Options(umap=False))  # type: ignore[arg-type]
    write_analysis(analysis, tmp_path)
    whole = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    for name in ("statistics.json", "SHA256SUMS"):
        (tmp_path / "tables" / name).unlink()
    write_analysis(analysis, tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()} == whole
