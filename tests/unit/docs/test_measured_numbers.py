"""A page that states measured numbers says which result files they are from."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
CARD = DOCS.parent / "src" / "residual_audio" / "models" / "nano" / "MODEL_CARD.md"
SCORE = re.compile(r"\d+\.\d+ ?%|\d ?%? \[[−-]?\d")
"""81.5%, or 0.9 [0.8, 1.0]: nobody writes a setting like that."""
DECIMAL = re.compile(r"(?<![\w.])(?<![≤≥<] )[−-]?\d+\.\d{2,}(?!\w|\.\d)")
"""0.91, but not q ≤ 0.05. One or two in a section may be settings; more are a measurement."""
FEW = 2
FENCED, INLINE = re.compile(r"```.*?```", re.DOTALL), re.compile(r"`[^`\n]*`")
SOURCE = re.compile(r"results/(?:claims|composition|faults|nano|onnx|residual|speed|\w+\.json)\b")
"""A file or folder of docs/results, not the `results/` of some run."""
NOT_MEASURED = {
    ("analysis.md", "From a published table"): "numbers of the published table itself",
    ("datasets.md", "Synthetic sounds"): "chance",
    ("evaluation.md", "CompA"): "simulated in tests/unit/metrics/test_simulated.py",
    ("protocols.md", "Paolini (2025)"): "settings of a published protocol",
    ("howto/check-a-model.md", "Is this checkpoint healthy?"): "limits of the check",
}
"""Decimal numbers that nobody measured here: (page, section) → what they are."""


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Title and text of what stands under each first- or second-level heading, code left out."""
    for part in re.split(r"(?m)^(?=##? )", FENCED.sub("", text)):
        if part.strip():
            yield part.splitlines()[0].lstrip("# ").strip(), part


def is_measured(text: str) -> bool:
    return bool(SCORE.search(text)) or len(set(DECIMAL.findall(text))) > FEW


def unsourced(text: str) -> list[str]:
    """Titles of sections with measured numbers but no result file, neither there nor on top."""
    parts = list(sections(text))
    if parts and SOURCE.search(parts[0][1]):
        return []
    return [
        title
        for title, part in parts
        if is_measured(INLINE.sub("", part)) and not SOURCE.search(part)
    ]


NUMBER = r"[−+-]?\d+(?:\.\d+)?"
WITH_ENDS = re.compile(rf"({NUMBER}) ?%? \[({NUMBER}) ?%?, ({NUMBER}) ?%?\]")
"""80.5% [75.6, 85.0]"""
FILES = re.compile(r"results/[\w./-]*\w")
Interval = tuple[float, float, float]


@cache
def intervals_of(path: Path) -> tuple[Interval, ...]:
    """Every number with its two ends in a result file, or in all files of a folder."""
    if path.is_dir():
        return tuple(found for inner in sorted(path.rglob("*.*")) for found in intervals_of(inner))
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as lines:
            return tuple(found for row in csv.DictReader(lines) for found in _of_row(row))
    if path.suffix == ".json":
        return tuple(_inside(json.loads(path.read_text(encoding="utf-8"))))
    return ()


def _of_row(row: Mapping[str, object]) -> Iterator[Interval]:
    """`value`, `low`, `high`, or `x`, `x_low`, `x_high`."""
    for name, value in row.items():
        alone = name in ("value", "mean")
        ends = [row.get(end if alone else f"{name}_{end}") for end in ("low", "high")]
        if value not in (None, "") and not any(end in (None, "") for end in ends):
            try:
                yield float(str(value)), float(str(ends[0])), float(str(ends[1]))
            except ValueError:
                continue


def _inside(value: object) -> Iterator[Interval]:
    if isinstance(value, dict):
        yield from _of_row(value)
        for inner in value.values():
            yield from _inside(inner)
    elif isinstance(value, list):
        if len(value) == 3 and all(isinstance(n, float) for n in value):
            yield value[0], value[1], value[2]
        for inner in value:
            yield from _inside(inner)


def says(printed: str, value: float) -> bool:
    """Whether this is how the value is printed, to its last digit."""
    plain = printed.replace("−", "-").lstrip("+")
    digits = len(plain.partition(".")[2])
    return abs(float(plain) - value) <= 0.5001 * 10.0**-digits


def backed(printed: tuple[str, ...], known: tuple[Interval, ...]) -> bool:
    """As it is, in points of a hundred, or turned round (lost for gained)."""
    return any(
        all(says(text, scale * number) for text, number in zip(printed, one, strict=True))
        for value, low, high in known
        for scale in (1, 100)
        for one in ((value, low, high), (-value, -high, -low))
    )


def unbacked(text: str, folder: Path) -> list[tuple[str, ...]]:
    """Numbers with ends that no result file named in their section, or on top, has."""
    parts, out = list(sections(text)), []
    on_top = FILES.findall(parts[0][1]) if parts else []
    for _, part in parts:
        paths = {folder / name for name in (*on_top, *FILES.findall(part))}
        known = tuple(found for path in sorted(paths) for found in intervals_of(path))
        out += [p for p in WITH_ENDS.findall(INLINE.sub("", part)) if not backed(p, known)]
    return out


def pages() -> list[Path]:
    return [p for p in sorted(DOCS.rglob("*.md")) if "results" not in p.relative_to(DOCS).parts]


@pytest.mark.parametrize("path", [*pages(), CARD], ids=lambda p: p.name)
def test_measured_numbers_name_their_result_files(path: Path) -> None:
    name = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else path.name
    found = [
        t for t in unsourced(path.read_text(encoding="utf-8")) if (name, t) not in NOT_MEASURED
    ]
    assert not found, f"{name}: link the files in docs/results/ these are from, or take them out"


@pytest.mark.parametrize(
    "path",
    [*(p for p in pages() if p.name != "claims.md"), CARD, DOCS.parent / "README.md"],
    ids=lambda p: p.name,
)
def test_numbers_with_intervals_are_those_of_their_files(path: Path) -> None:
    """The page of claims is made from its files, and compared with them as a whole."""
    assert unbacked(path.read_text(encoding="utf-8"), DOCS) == [], "not in the files it names"


def test_a_figure_that_no_longer_matches_is_found(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    score = {"scores": [{"name": "top1", "value": 0.8053, "low": 0.7561, "high": 0.8499}]}
    (tmp_path / "results" / "x.json").write_text(json.dumps(score))
    page = "# A\n\n{} of [x](results/x.json)\n"
    assert unbacked(page.format("80.5% [75.6, 85.0]"), tmp_path) == []
    assert unbacked(page.format("−0.81 [−0.85, −0.76]"), tmp_path) == []
    assert unbacked(page.format("80.6% [75.6, 85.0]"), tmp_path) == [("80.6", "75.6", "85.0")]
    assert unbacked("# A\n\n80.5% [75.6, 85.0]\n", tmp_path) != []


def test_what_is_excused_is_there() -> None:
    for name, title in NOT_MEASURED:
        page = CARD if name == CARD.name else DOCS / name
        assert title in dict(sections(page.read_text(encoding="utf-8"))), (name, title)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\n\nH is 0.91, G 0.93, F 0.95.\n", ["A"]),
        ("# A\n\nH is 0.91 [0.86, 0.94].\n", ["A"]),
        ("# A\n\nAdamW at 0.01, weight decay 0.05\n", []),
        ("# A\n\nlike `0.91` and version 1.2.3, step 1,200\n", []),
        ("# A\n\n## B\n\n81.5%\n\n## C\n\n0.9 [0.8, 1.0], see [files](results/x.json)\n", ["B"]),
        ("# A\n\nfrom results/x.json\n\n## B\n\n81.5%\n", []),
        ("# A\n\n```\ntop-1 0.91\n```\n", []),
    ],
)
def test_the_search_finds_what_it_should(text: str, expected: list[str]) -> None:
    assert unsourced(text) == expected


def test_links_to_result_files_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)#]*results/[^)#]*)\)")
    for path in pages():
        for target in link.findall(path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} → {target}"
