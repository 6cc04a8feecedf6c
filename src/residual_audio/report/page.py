"""One self-contained HTML page of a run: no network, no scripts from elsewhere, all text escaped.

It is drawn from what lies in the run folder (`run.json`, `tables/`, `figures/`, `results/`,
`previews/`), so it can be drawn again on a machine that has neither the weights nor the sounds.
"""

from __future__ import annotations

import base64
import csv
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from residual_audio import __version__
from residual_audio.errors import InputError
from residual_audio.files import belongs_to, read_json, write_text
from residual_audio.provenance import without_machine_paths
from residual_audio.report.figures import DRAWINGS, FIGURES
from residual_audio.report.sections import SECTIONS, Section
from residual_audio.seals import prove_document, prove_file

MOST_ROWS = 400
"""Longer tables are cut on the page, saying so; the CSV beside it is whole."""


@dataclass(frozen=True)
class Listing:
    """One CSV file, ready to print."""

    name: str
    columns: list[str]
    rows: list[list[str]]
    n_rows: int


@dataclass(frozen=True)
class Picture:
    """One picture with its caption, as a data URI."""

    name: str
    caption: str
    uri: str
    wide: bool
    """Takes the whole width of the page."""


@dataclass(frozen=True)
class PagePart:
    """One section of the page with what was found for it."""

    section: Section
    figures: list[Picture]
    tables: list[Listing]


@dataclass(frozen=True)
class ScoreRow:
    """One line of the score table."""

    task: str
    model: str
    dataset: str
    split: str
    name: str
    value: str
    interval: str
    n: int
    chance: str


@dataclass(frozen=True)
class Page:
    """Everything the template prints."""

    title: str
    facts: list[tuple[str, str]]
    warnings: list[str]
    scores: list[ScoreRow]
    parts: list[PagePart]
    previews: list[dict[str, Any]] = field(default_factory=list)
    provenance: str = ""
    version: str = __version__


def write_page(run: Path) -> Path:
    """Draw `run/report.html` and return its path."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    if not run.is_dir():
        raise InputError(f"'{run}' is not a run folder")
    page = gather(run)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    html = environment.get_template("page.html.j2").render(page=page)
    return write_text(run / "report.html", html)


def gather(run: Path) -> Page:
    """Collect what a run folder holds; parts that were not run are left out."""
    record = _json(run / "run.json")
    parts = [
        _part(run, section, [d.name for d in DRAWINGS if d.section == section.id])
        for section in SECTIONS
    ]
    shown = {figure.name for part in parts for figure in part.figures}
    extra = sorted(path.stem for path in (run / "figures").glob("*.png") if path.stem not in shown)
    if extra:
        parts.append(_part(run, Section("more", "More figures", "", ()), extra))
    return Page(
        title=without_machine_paths(
            f"{record.get('model', 'model')} on {record.get('dataset', run.name)}"
        ),
        facts=_facts(record),
        warnings=[str(text) for text in record.get("warnings", [])],
        scores=_scores(run),
        parts=[part for part in parts if part.figures or part.tables],
        previews=_previews(run),
        provenance=json.dumps(record, indent=2, ensure_ascii=False),
    )


def _json(path: Path) -> dict[str, Any]:
    value = read_json(prove_file(path)) if path.is_file() else {}
    if not isinstance(value, dict):
        return {}
    prove_document(value, path)
    return value


def _facts(record: dict[str, object]) -> list[tuple[str, str]]:
    names = {
        "model": "model",
        "dataset": "data set",
        "n_clips": "clips",
        "n_skipped": "skipped",
        "n_heads": "heads",
        "template": "prompt",
        "partial": "partial",
        "seconds": "seconds",
    }
    facts = [
        (shown, without_machine_paths(str(record[key])))
        for key, shown in names.items()
        if record.get(key) is not None
    ]
    sha = record.get("sha256")
    return [*facts, ("weights sha256", f"{str(sha)[:16]}…")] if sha else facts


def _part(run: Path, section: Section, figures: Sequence[str]) -> PagePart:
    pictures = [
        _figure(run / "figures" / f"{name}.png")
        for name in figures
        if belongs_to(run, run / "figures" / f"{name}.png")
    ]
    tables = [
        _table(run / "tables" / f"{name}.csv")
        for name in section.tables
        if belongs_to(run, run / "tables" / f"{name}.csv")
    ]
    return PagePart(section, pictures, tables)


def _figure(path: Path) -> Picture:
    caption = FIGURES[path.stem].caption if path.stem in FIGURES else ""
    # width and height stand in the header of every PNG
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return Picture(path.stem, caption, _data_uri(path, "image/png"), width > 1.5 * height)


def _data_uri(path: Path, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _table(path: Path) -> Listing:
    with prove_file(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows:
        return Listing(path.stem, [], [], 0)
    body = [[_short(cell) for cell in row] for row in rows[1 : MOST_ROWS + 1]]
    return Listing(path.stem, rows[0], body, len(rows) - 1)


def _short(cell: str) -> str:
    """Numbers to four significant digits, a dash for none; everything else as it is."""
    try:
        value = float(cell)
    except ValueError:
        return cell
    if not math.isfinite(value):
        return "–"
    if value.is_integer() and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.4g}"


def _scores(run: Path) -> list[ScoreRow]:
    rows = []
    found = [_json(path) for path in sorted((run / "results").glob("*.json"))]
    # first what the model does as it is, then what was made of it
    for result in sorted(found, key=lambda one: "adapted" in str(one.get("task"))):
        if str(result.get("task")).startswith("adapted"):
            continue  # a table of its own
        for score in result.get("scores", []):
            low, high, chance = (score.get(key) for key in ("low", "high", "chance"))
            value = score.get("value")
            rows.append(
                ScoreRow(
                    task=str(result.get("task", "")),
                    model=str(result.get("model", "")),
                    dataset=str(result.get("dataset", "")),
                    split=str(result.get("split", "")),
                    name=str(score.get("name", "")),
                    value="–" if value is None else f"{value:.4g}",
                    interval="–" if low is None or high is None else f"{low:.4g} – {high:.4g}",
                    n=int(score.get("n", 0)),
                    chance="–" if chance is None else f"{chance:.4g}",
                )
            )
    return rows


def _previews(run: Path) -> list[dict[str, Any]]:
    listing = _json(run / "previews" / "previews.json").get("clips", [])
    previews = []
    for entry in listing:
        path = run / "previews" / Path(str(entry.get("file", ""))).name
        if belongs_to(run, path):
            previews.append({**entry, "uri": _data_uri(prove_file(path), "audio/ogg")})
    return previews
