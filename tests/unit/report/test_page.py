"""The page: whole in one file, drawn from the run folder alone, nothing from data runs as code."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from residual_audio.cli.app import build
from residual_audio.errors import InputError
from residual_audio.report.figures import DRAWINGS, FIGURES
from residual_audio.report.figures_training import training_table
from residual_audio.report.page import MOST_ROWS, write_page
from residual_audio.report.sections import SECTIONS

NASTY = "<script>alert('x')</script>"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("tables", "figures", "results", "previews"):
        (tmp_path / name).mkdir()
    (tmp_path / "run.json").write_text(
        json.dumps({"model": "nano", "dataset": NASTY, "n_clips": 3, "warnings": [NASTY]})
    )
    (tmp_path / "figures" / "anything.png").write_bytes(PIXEL)
    rows = "\n".join(f"{NASTY},{i / 7}" for i in range(MOST_ROWS + 5))
    (tmp_path / "tables" / "stages.csv").write_text("name,value\na,0.123456\n")
    (tmp_path / "tables" / "heads.csv").write_text(f"name,value\n{rows}\n")
    scores = [
        {"name": "top1", "value": 0.5, "low": 0.4, "high": 0.6, "n": 20, "chance": 0.02},
        {"name": NASTY, "value": None, "low": None, "high": None, "n": 1, "chance": None},
    ]
    result = {
        "task": "zero-shot",
        "model": "nano",
        "dataset": "d",
        "split": "all",
        "scores": scores,
    }
    (tmp_path / "results" / "r.json").write_text(json.dumps(result))
    (tmp_path / "previews" / "clip-00.ogg").write_bytes(b"OggS")
    clips = [
        {"id": NASTY, "label": NASTY, "prediction": "dog", "score": 0.5, "file": "clip-00.ogg"},
        {"id": "x", "label": "y", "prediction": "y", "score": None, "file": "../../etc/passwd"},
    ]
    (tmp_path / "previews" / "previews.json").write_text(json.dumps({"clips": clips}))
    return tmp_path


def test_data_is_escaped_and_nothing_is_loaded_from_elsewhere(run: Path) -> None:
    html = write_page(run).read_text()
    assert NASTY not in html
    assert "&lt;script&gt;" in html
    assert html.count("<script>") == 1  # the page's own
    sources = re.findall(r'(?:src|href)="([^"#][^"]*)"', html)
    assert sources
    assert all(source.startswith("data:") for source in sources)


def test_scores_show_interval_n_and_chance(run: Path) -> None:
    html = write_page(run).read_text()
    row = re.search(r"<tr><td>zero-shot</td>.*?top1.*?</tr>", html, re.S)
    assert row is not None
    for shown in ("0.5", "0.4 – 0.6", "20", "0.02"):
        assert f"<td>{shown}</td>" in row[0]


def test_pictures_and_sounds_are_inside(run: Path) -> None:
    html = write_page(run).read_text()
    assert f"data:image/png;base64,{base64.b64encode(PIXEL).decode()}" in html
    assert f"data:audio/ogg;base64,{base64.b64encode(b'OggS').decode()}" in html
    assert html.count("<audio") == 1  # a name that leaves the folder is not followed


def test_long_tables_are_cut_and_say_so(run: Path) -> None:
    html = write_page(run).read_text()
    assert "0.1235" in html
    assert f"The first {MOST_ROWS} rows; tables/heads.csv has all." in html


def test_an_empty_run_still_gives_a_page_and_a_missing_one_an_error(tmp_path: Path) -> None:
    assert "ResiDual Audio" in write_page(tmp_path).read_text()
    with pytest.raises(InputError, match="not a run folder"):
        write_page(tmp_path / "nowhere")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match="not readable JSON"):
        write_page(tmp_path)


def test_every_figure_has_its_place_on_the_page() -> None:
    assert len(FIGURES) == len(DRAWINGS)
    assert {drawing.section for drawing in DRAWINGS} <= {section.id for section in SECTIONS}


def test_a_training_run_is_drawn_from_its_tracking(tmp_path: Path) -> None:
    folder = tmp_path / "audio"
    folder.mkdir()
    heads = ["s0.b0.h0", "s0.b0.h1", "s1.b0.h0"]
    lines = [
        {"step": step, "heads": heads, "pca_90": [1, 2, 4], "pca_99": [2, 4, 6 + step]}
        | {"pr": [1.0, 1.5, 3.0], "modality_gap": 0.5, "rankme_audio": 10 + step}
        | {"rankme_text": 9.0, "matched_cosine": 0.1, "probe_accuracy": 0.2}
        for step in (0, 10)
    ]
    (folder / "tracking.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    found = CliRunner().invoke(build(), ["report", str(tmp_path)])
    assert found.exit_code == 0, found.output
    rows = list(csv.DictReader((tmp_path / "tables" / "training.csv").open()))
    assert [float(row["pca_99"]) for row in rows] == [3, 6, 3, 16]
    assert (tmp_path / "figures" / "training.png").is_file()
    assert "How it emerged in training" in (tmp_path / "report.html").read_text()
    (folder / "tracking.jsonl").write_text("{}")
    with pytest.raises(InputError, match="line 1"):
        training_table(tmp_path)
