"""Names that nobody chose: on a terminal, in a spreadsheet, in LaTeX, on disk."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from residual_audio.benchmarks.faults.commands import said
from residual_audio.benchmarks.faults.outcome import STANDARD, Campaign, CampaignSettings
from residual_audio.data.registry import load_dataset
from residual_audio.errors import DatasetError, ResidualAudioError
from residual_audio.files import harmless
from residual_audio.report.table_files import write_csv
from residual_audio.report.typesetting import latex_text
from residual_audio.results import slug
from residual_audio.table import from_rows, read_csv

ESCAPES = (
    "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "a\rb", "a\x08b", "\x7f", "\u202etxt.exe", "\x1bc",
    "\x1b[?1049h", "\u2066x\u2069", "line\nline", "[bold red]markup[/]", "[link=file:///x]x[/link]",
)  # fmt: skip
FORMULAS = (
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''@x",
    '=HYPERLINK("http://x")',
)  # fmt: skip
LATEX = (r"\input{/etc/passwd}", r"\write18{rm}", r"\immediate\openout", "a_b^c", "{}%$#&~", "\\")
CLIMBING = ("../../x", "/etc/passwd", "..", "a/b", "\0", "", ".hid", "-rf", "a\\..\\b", "~/x")
OUTSIDE = ("../x.wav", "/etc/hostname", "a/../../x.wav", "../../../etc/passwd")


def hostile_text(asked: CampaignSettings = STANDARD, most: int | None = None) -> list[Campaign]:
    """One campaign a place where text ends up; `most` strings of each."""
    kinds = {
        "terminal": ("nothing moves the cursor, sets a title or changes colour", ESCAPES),
        "spreadsheet": ("no cell begins a formula, and reading gives the text back", FORMULAS),
        "LaTeX": ("names are text, never commands", LATEX),
        "file names": ("a name becomes a file in its folder", CLIMBING),
        "tables of recordings": ("a table names no file outside its folder", OUTSIDE),
    }
    tries = {
        "terminal": _on_terminal,
        "spreadsheet": _in_csv,
        "LaTeX": _in_latex,
        "file names": _as_file_name,
        "tables of recordings": _in_manifest,
    }
    found = []
    for name, (promise, texts) in kinds.items():
        campaign = asked.campaign(f"text: {name}", promise)
        if not campaign.complete:
            with tempfile.TemporaryDirectory() as folder:
                chosen = texts[:most]
                asked.progress.step(f"text {name}", len(chosen), "texts")
                for i, text in enumerate(chosen):
                    campaign.attempt(partial(tries[name], text, Path(folder) / str(i)))
                    asked.progress.advance()
            campaign.end()
        found.append(campaign)
    return found


def _on_terminal(text: str, room: Path) -> str | None:
    """As a folder's name, a file's name and a label of several commands."""
    folder = room / "data" / f"dog{text}"
    folder.mkdir(parents=True)
    soundfile.write(folder / f"a{text.replace('/', ' ')}.wav", np.zeros(800), 8000)
    for command in _commands(folder, text):
        answer = said(command, room / "said")
        shown = (room / "said").read_bytes().decode("utf-8", "replace")
        bad = [c for c in shown if c not in "\n" and harmless(c) != c]
        if bad:
            return f"{text!r}: {command[0]} printed {bad[0]!r}"
        if "Traceback" in answer.text:
            return f"{text!r}: {command[0]} ended with a traceback"
        if command[0] == "classify" and text.startswith("[") and text[:6] not in shown:
            return f"{text!r}: {command[0]} took it for markup"
    return None


def _commands(folder: Path, text: str) -> Iterator[list[str]]:
    yield ["datasets", "check", "folder", "--root", str(folder.parent)]
    yield ["store", "verify", str(folder / f"no{text}")]
    yield ["classify", str(next(folder.iterdir())), "--labels", f"dog{text},cat", "-m", "nano"]


def _in_csv(text: str, room: Path) -> str | None:
    rows = [{"label": label, "value": -1.5} for label in (text, "dog", "-")]
    table = from_rows("x", rows)
    path = write_csv(room / "x.csv", table)
    with path.open(newline="", encoding="utf-8") as file:
        cells = [row[0] for row in csv.reader(file)][1:]
    if any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells):
        return f"{text!r}: a cell begins a formula"
    again = [str(cell).strip() for cell in read_csv(path)["label"]]
    return None if again == [harmless(text), "dog", "-"] else f"{text!r}: read back as {again[0]!r}"


def _in_latex(text: str, room: Path) -> str | None:
    shown = latex_text(text)
    commands = [
        name for name in ("\\input", "\\write", "\\immediate", "\\openout") if name in shown
    ]
    bare = [c for c in "_%$#&" if c in text and f"\\{c}" not in shown]
    return f"{text!r}: {shown!r}" if commands or bare else None


def _as_file_name(text: str, room: Path) -> str | None:
    made = slug(text)
    inside = (room / made).resolve().parent == room.resolve()
    plain = bool(made) and not made.startswith((".", "-")) and "\0" not in made
    return None if inside and plain else f"{text!r}: became {made!r}"


def _in_manifest(text: str, room: Path) -> str | None:
    room.mkdir()
    (room / "manifest.csv").write_text(f"path,label\n{text},dog\n")
    try:
        load_dataset("manifest", room)
    except DatasetError as error:
        return None if "outside" in str(error) else f"{text!r}: said '{error}'"
    except ResidualAudioError as error:
        return f"{text!r}: said '{error}'"
    return f"{text!r}: was taken"
