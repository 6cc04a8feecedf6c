"""The study: published tables come out again, and its warnings say what to doubt."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from residual_audio.errors import InputError
from residual_audio.geometry.cells import Cells, cells_of_results, read_cells
from residual_audio.geometry.correlates import correlate, correlation_within
from residual_audio.report import figures_evaluation as plots
from residual_audio.report.style import save
from residual_audio.types import Result, Score


@pytest.fixture
def published(shared_dir: Path, tmp_path: Path) -> Path:
    """Tables 2 and 3 of the geometry post, joined cell by cell."""
    tables = json.loads((shared_dir / "reference" / "published.json").read_text())[
        "bahuguna_geometry"
    ]
    scores, probes = tables["table2_compa"], tables["table3_probes"]
    path = tmp_path / "cells.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*scores["columns"], *probes["columns"][2:], "cosine"])
        for left, right in zip(scores["rows"], probes["rows"], strict=True):
            assert left[1] == right[1]
            assert left[0].startswith(right[0])
            writer.writerow([*left, *right[2:], math.cos(math.radians(right[-1]))])
    return path


@pytest.mark.parametrize(
    ("probe", "spearman", "pearson"),
    [
        ("rankme_text", 0.94, 0.92),
        ("angle_deg", -0.89, -0.79),
        ("rankme_audio", 0.83, 0.83),
        ("l2_gap", -0.20, 0.07),
        ("cosine", 0.89, 0.79),
    ],
)
def test_rows_of_table_4_that_follow_from_tables_2_and_3(
    published: Path, probe: str, spearman: float, pearson: float
) -> None:
    row = correlate(read_cells(published))[probe, "H"]
    assert row.spearman == pytest.approx(spearman, abs=0.005)
    assert row.pearson == pytest.approx(pearson, abs=0.0075)  # the columns are rounded
    assert row.n == 6


def test_rows_of_table_4_that_do_not_follow(published: Path) -> None:
    found = correlate(read_cells(published))
    assert found["resid10_audio", "H"].spearman == pytest.approx(0.58, abs=0.005)  # printed: 0.31
    assert found["resid10_audio", "H"].pearson == pytest.approx(0.607, abs=0.005)  # printed: −0.05
    assert found["twonn_text", "H"].spearman == pytest.approx(-0.029, abs=0.005)  # printed: −0.09


def test_p_values_and_warnings_of_the_published_cells(published: Path) -> None:
    cells = read_cells(published)
    assert len(cells) == 6
    assert set(cells.scores) == {"F", "G", "H"}
    assert "model" not in cells.probes
    found = correlate(cells, scores=["H"])
    row = found["rankme_text", "H"]
    assert row.p_spearman == pytest.approx(0.005, abs=0.0005)
    assert row.p_pearson == pytest.approx(0.008, abs=0.0005)
    assert row.p_spearman_permutation == pytest.approx(12 / 720)
    # three models in each of two benchmarks: 36 orders, the best of which is reached once
    assert row.p_within == pytest.approx(1 / 36)
    said = " ".join(found.warnings)
    assert "only 6 cells" in said
    assert "3 models and 2 benchmarks" in said
    assert found.rows[0].probe == "rankme_text"


def test_json_tables(published: Path, tmp_path: Path) -> None:
    rows = list(csv.DictReader(published.open()))
    expected = correlate(read_cells(published), scores=["H"])
    as_list = tmp_path / "list.json"
    as_list.write_text(
        json.dumps(
            [{k: v if k in ("model", "bench") else float(v) for k, v in r.items()} for r in rows]
        )
    )
    as_table = tmp_path / "table.json"
    as_table.write_text(
        json.dumps({"columns": list(rows[0]), "rows": [list(r.values()) for r in rows]})
    )
    for path in (as_list, as_table):
        assert correlate(read_cells(path), scores=["H"]) == expected


def test_a_probe_that_only_follows_the_benchmark_is_seen_through() -> None:
    """Scores and probe differ between benchmarks, but within each they are unrelated."""
    rng = np.random.default_rng(0)
    benchmark = np.repeat([0, 1], 8)
    x, y = 10.0 * benchmark + rng.normal(size=16), 5.0 * benchmark + rng.normal(size=16)
    cells = Cells(
        tuple(f"m{i % 8}" for i in range(16)),
        tuple("ab"[b] for b in benchmark),
        {"top1": y},
        {"rankme": x},
    )
    row = correlate(cells)["rankme", "top1"]
    assert row.pearson > 0.8
    assert abs(row.pearson_within) < 0.5
    assert row.p_within > 0.05


def test_within_is_nan_where_there_is_nothing_within() -> None:
    x = np.arange(5.0)
    assert math.isnan(correlation_within(x, x, ["a"] * 5)[0])
    assert math.isnan(correlation_within(x, x, list("abcde"))[0])
    value, p = correlation_within(np.arange(40.0), np.arange(40.0), ["a", "b"] * 20)
    assert value == pytest.approx(1)
    assert p < 0.001


def _result(task: str, model: str, dataset: str, **scores: float) -> Result:
    return Result(
        task, model, dataset, "all", tuple(Score(k, v, v, v, 9) for k, v in scores.items())
    )


def test_cells_join_results_of_the_same_model_and_data() -> None:
    results = [
        _result("probe", "a", "x", rankme_text=10.0),
        _result("zero-shot", "a", "x", top1=0.5),
        _result("retrieval", "a", "x", t2a_r1=0.1),
        _result("probe", "b", "x", rankme_text=20.0),
        _result("zero-shot", "b", "x", top1=0.6),
        _result("probe", "c", "x", rankme_text=1.0),  # no score: no cell
    ]
    cells = cells_of_results(results)
    assert cells.models == ("a", "b")
    np.testing.assert_allclose(cells.scores["top1"], [0.5, 0.6])
    assert np.isnan(cells.scores["t2a_r1"][1])
    with pytest.raises(InputError, match="none of a probe"):
        cells_of_results(results[:1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model,bench,H,rank\n", "no row"),
        ("model,bench,H\na,b,1\n", "3 and 0|scores and probes"),
        ("model,bench,rank\na,b,1\n", "scores and probes"),
    ],
)
def test_tables_without_content(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        correlate(read_cells(path))


def test_bad_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("model,bench,H,rank,word\na,o,1,2,x\n\nb,o,2,,y\n")
    cells = read_cells(path)
    assert np.isnan(cells.probes["rank"][1])
    with pytest.raises(InputError, match="no column 'nope'"):
        read_cells(path, scores=["nope"])
    with pytest.raises(InputError, match=r"'word' .* not numbers"):
        read_cells(path, probes=["word"])
    with pytest.raises(InputError, match="no score 'F'"):
        correlate(cells, scores=["F"])
    other = tmp_path / "t.json"
    other.write_text('{"a": 1}')
    with pytest.raises(InputError, match="not a table"):
        read_cells(other)
    with pytest.raises(InputError, match="no file"):
        read_cells(tmp_path / "absent.csv")


def test_scatter_is_drawn_the_same_each_time(published: Path, tmp_path: Path) -> None:
    cells = read_cells(published)
    found = correlate(cells, scores=["H"])
    for name in ("a.png", "b.png"):
        save(plots.scatter(cells, found, "H"), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").stat().st_size > 5000
