"""Every promise names a test that exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import copy

import pytest

from residual_audio.benchmarks.faults.campaign_page import write_campaigns
from residual_audio.benchmarks.faults.campaigns import CAMPAIGNS
from residual_audio.benchmarks.memory import FLAT, growth
from residual_audio.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "promises.md"
LINES = [
    line
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| promise", "| ---", "| campaign"))
]
CAMPAIGN = re.compile(r"\| [\d,]+ \| [\d,]+ \|$")
PROMISES = [line for line in LINES if not CAMPAIGN.search(line)]
RUN = [line for line in LINES if CAMPAIGN.search(line)]
OUTCOMES = sorted((ROOT / "docs" / "results" / "faults").glob("*.json"))


def test_there_are_promises() -> None:
    assert len(PROMISES) > 30


@pytest.mark.parametrize("line", PROMISES, ids=lambda line: line[2:50])
def test_a_promise_names_tests_that_exist(line: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)
    assert named, "no test is named"
    for file, name in named:
        assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"


@pytest.mark.parametrize("path", OUTCOMES, ids=lambda path: path.stem)
def test_a_campaign_that_is_cited_was_run_whole_and_held(path: Path) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["complete"]
    assert not found["quick"]
    assert found["held"] == found["tried"] > 0
    assert found["broken"] == []
    group = found["name"].partition(":")[0].replace(" ", "-")
    assert any(name.startswith(group) or group in name for name in CAMPAIGNS)


def test_the_page_has_the_table_that_campaigns_write(tmp_path: Path) -> None:
    written = write_campaigns(ROOT / "docs" / "results" / "faults", Path(copy(PAGE, tmp_path)))
    assert written.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    assert len(RUN) == len(OUTCOMES) > 30


def test_a_page_without_a_place_for_the_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(InputError, match=r"page\.md"):
        write_campaigns(tmp_path, tmp_path / "page.md")


def test_memory_is_flat_as_measured() -> None:
    found = json.loads((ROOT / "docs" / "results" / "memory.json").read_text(encoding="utf-8"))
    few, many = found["runs"]
    assert many["clips"] >= 5000
    assert many["clips"] >= 10 * few["clips"]
    assert growth(found["runs"]) < FLAT
    for run in (few, many):
        assert f"{run['peak_mb']:.0f} MB for {run['clips']:,}" in PAGE.read_text(encoding="utf-8")
