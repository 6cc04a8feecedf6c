"""Every promise names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "promises.md"
LINES = [
    line
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| promise", "| ---"))
]


def test_there_are_promises() -> None:
    assert len(LINES) > 30


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[2:50])
def test_a_promise_names_tests_that_exist(line: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)
    assert named, "no test is named"
    for file, name in named:
        assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"
