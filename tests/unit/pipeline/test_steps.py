"""Steps of a run: done once, done again only when what they rest on changed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from residual_audio.pipeline.previews import choose
from residual_audio.pipeline.steps import Steps, contents, digest


def test_a_step_is_skipped_until_its_ground_or_its_files_change(tmp_path: Path) -> None:
    lines: list[str] = []
    calls: list[int] = []

    def work() -> tuple[Iterable[Path], str]:
        calls.append(1)
        out = tmp_path / "out.csv"
        out.write_text("x")
        return [out], "one file"

    assert Steps(tmp_path, lines.append).do("analyse", {"store": "a"}, work)
    assert not Steps(tmp_path, lines.append).do("analyse", {"store": "a"}, work)
    assert "up to date" in lines[-1]
    assert Steps(tmp_path, lines.append).do("analyse", {"store": "b"}, work)
    (tmp_path / "out.csv").unlink()
    assert Steps(tmp_path, lines.append).do("analyse", {"store": "b"}, work)
    assert len(calls) == 3


def test_a_failed_step_leaves_no_record(tmp_path: Path) -> None:
    def fail() -> tuple[Iterable[Path], str]:
        raise ValueError("no")

    steps = Steps(tmp_path, lambda line: None)
    steps.do("a", 1, lambda: ([], "fine"))
    with pytest.raises(ValueError, match="no"):
        steps.do("a", 2, fail)
    assert Steps(tmp_path, lambda line: None).do("a", 2, lambda: ([], "again"))


def test_digest_and_contents_follow_the_bytes(tmp_path: Path) -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    (tmp_path / "a.csv").write_text("1")
    before = contents(tmp_path, "*.csv")
    (tmp_path / "a.csv").write_text("2")
    assert contents(tmp_path, "*.csv") != before


@pytest.mark.parametrize(
    ("correct", "n_right"), [([True] * 9, 6), ([False] * 9, 0), ([True, False] * 9, 3)]
)
def test_previews_show_failures_beside_successes(correct: list[bool], n_right: int) -> None:
    chosen = choose(correct, 6)
    assert len(chosen) == 6
    assert sum(correct[i] for i in chosen) == n_right
    assert chosen == choose(correct, 6)
