"""A page that states measured numbers says which result files they are from."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
SOURCE = re.compile(r"results/")
NOT_MEASURED = {
    ("analysis.md", "From a published table"): "numbers of the published table itself",
    ("datasets.md", "Synthetic sounds"): "chance",
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


def pages() -> list[Path]:
    return [p for p in sorted(DOCS.rglob("*.md")) if "results" not in p.relative_to(DOCS).parts]


@pytest.mark.parametrize("path", [*pages(), CARD], ids=lambda p: p.name)
def test_measured_numbers_name_their_result_files(path: Path) -> None:
    name = path.relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else path.name
    found = [
        t for t in unsourced(path.read_text(encoding="utf-8")) if (name, t) not in NOT_MEASURED
    ]
    assert not found, f"{name}: link the files in docs/results/ these are from, or take them out"


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
