"""Names that nobody chose: on a terminal, in a spreadsheet, in LaTeX, on a page, on disk."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import soundfile

from residual_audio.atlas.media import read_media
from residual_audio.benchmarks.faults.commands import said
from residual_audio.data.registry import load_dataset
from residual_audio.errors import DatasetError
from residual_audio.files import harmless, shown, write_json
from residual_audio.report.page import write_page
from residual_audio.report.table_files import write_csv
from residual_audio.report.typesetting import latex_text
from residual_audio.results import slug
from residual_audio.table import Table, read_csv

ESCAPES = [
    "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "a\rb", "a\x08b", "\x7f", "\u202etxt.exe", "\x1bc",
    "\x1b[?1049h", "\u2066x\u2069", "line\nline", "\ud800",
]  # fmt: skip
FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''@x"]


@pytest.mark.parametrize("text", ESCAPES)
def test_nothing_that_moves_a_cursor_is_left(text: str) -> None:
    clean = harmless(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in clean)
    assert not any(c in clean for c in "\u202e\u2066\u2069")
    assert clean.encode()


def test_text_of_every_language_stays() -> None:
    for text in ("café", "犬の声", "כלב", "a b", "🐕‍🦺", "l’été"):
        assert harmless(text) == shown(text) == text


def test_a_command_prints_names_harmlessly(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "dog\x1b[2J"
    folder.mkdir(parents=True)
    soundfile.write(folder / "a\x1b]0;x\x07.wav", np.zeros(100), 8000)
    for command in (
        ["datasets", "check", "folder", "--root", str(tmp_path / "data")],
        ["classify", str(folder / "none\x1b[2J.wav"), "--labels", "dog\x1b[31m,cat"],
        ["store", "verify", str(tmp_path / "no\x1b[2J")],
    ):
        answer = said(command, tmp_path / "said")
        assert "\x1b" not in answer.text, command
        assert "Traceback" not in answer.text, answer.text


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_quoted_in_csv_and_read_back(tmp_path: Path, text: str) -> None:
    table = Table("x", {"label": [text, "dog", "-"], "value": [-1.5, 2.0, 3.0]})
    path = write_csv(tmp_path / "x.csv", table)
    with path.open(newline="") as file:
        cells = [row[0] for row in csv.reader(file)][1:]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    again = read_csv(path)
    assert [c.strip() for c in again["label"]] == [harmless(text), "dog", "-"]
    assert again["value"].tolist() == [-1.5, 2.0, 3.0]


@pytest.mark.parametrize(
    "text", [r"\input{/etc/passwd}", r"\write18{rm}", "a_b^c", "{}%$#&~", "\\"]
)
def test_latex_is_text(text: str) -> None:
    shown = latex_text(text)
    assert "\\input" not in shown
    assert "\\write" not in shown
    for special in "_%$#&":
        assert f"\\{special}" in shown or special not in text


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", "a/b", "\0", "", ".hid", "-rf"])
def test_names_of_files_stay_in_their_folder(name: str) -> None:
    made = slug(name)
    assert made
    assert "/" not in made
    assert not made.startswith((".", "-"))
    assert "\0" not in made


def test_a_page_carries_nothing_from_outside_its_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for folder in ("figures", "tables", "previews"):
        (run / folder).mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(b"SECRET," * 20)
    (run / "figures" / "x.png").symlink_to(secret)
    (run / "tables" / "heads.csv").symlink_to(secret)
    (run / "previews" / "a.ogg").symlink_to(secret)
    (run / "previews" / "previews.json").write_text('{"clips": [{"file": "a.ogg"}]}')
    page = write_page(run).read_text()
    assert "SECRET" not in page
    assert "U0VDUkVU" not in page  # the same in base64


def test_an_atlas_carries_no_sound_from_outside_its_run(tmp_path: Path) -> None:
    sounds = tmp_path / "run" / "atlas-data" / "sounds"
    sounds.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"SECRET")
    (sounds / "0.ogg").symlink_to(tmp_path / "secret")
    (sounds / "1.ogg").write_bytes(b"OggS")
    files = ("0.ogg", "1.ogg", "../../../secret", "../../../secret")
    clips = [{"row": i, "id": str(i), "file": name} for i, name in enumerate(files)]
    write_json(sounds.parent / "listing.json", {"seconds": 1.0, "clips": clips})
    assert read_media(tmp_path / "run", ["0", "1", "2", "3"]).sounds == {1: "1.ogg"}


@pytest.mark.parametrize("path", ["../x.wav", "/etc/hostname", "a/../../x.wav"])
def test_a_manifest_may_not_leave_its_folder(tmp_path: Path, path: str) -> None:
    (tmp_path / "manifest.csv").write_text(f"path,label\n{path},dog\n")
    with pytest.raises(DatasetError, match="outside"):
        load_dataset("manifest", tmp_path)


SENTENCES = {
    "gains": ["export", "nano", "--gains", "{bad}", "--out", "{out}"],
    "store": ["analyse", "{bad}"],
    "results": ["compare", "{bad}", "{bad}"],
    "out": ["extract", "nano", "synthetic", "--limit", "2", "--out", "/proc/none"],
    "file": ["extract", "nano", "synthetic", "--limit", "2", "--out", "{bad}"],
}


@pytest.mark.parametrize("case", SENTENCES)
def test_bad_inputs_are_one_sentence(tmp_path: Path, case: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("[1, 2")
    words = {"bad": str(bad), "out": str(tmp_path / "out")}
    command = [part.format(**words) for part in SENTENCES[case]]
    answer = said(command, tmp_path / "said")
    assert answer.code in (1, 2), answer.text
    assert "Traceback" not in answer.text
