"""Steps of a run: done once, done again only when what they rest on changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from residual_audio.pipeline.previews import choose
from residual_audio.pipeline.steps import Done, Steps, contents, digest
from residual_audio.progress import Progress


class _Heard(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self.lines.append(line)


def test_a_step_is_skipped_until_its_ground_or_its_files_change(tmp_path: Path) -> None:
    heard = _Heard()
    calls: list[int] = []
    out = tmp_path / "out.csv"

    def work() -> Done:
        calls.append(1)
        out.write_text("x")
        return Done([out], "one file")

    assert Steps(tmp_path, heard).do("analyse", {"store": "a"}, work)
    assert not Steps(tmp_path, heard).do("analyse", {"store": "a"}, work)
    assert "up to date" in heard.lines[-1]
    assert Steps(tmp_path, heard).do("analyse", {"store": "b"}, work)
    out.unlink()
    assert Steps(tmp_path, heard).do("analyse", {"store": "b"}, work)
    assert len(calls) == 3


def test_a_table_that_another_command_replaced_is_made_again(tmp_path: Path) -> None:
    table = tmp_path / "tables" / "adapted.csv"
    table.parent.mkdir()

    def work() -> Done:
        table.write_text("all methods")
        return Done([table], "table")

    Steps(tmp_path).do("reweight", 1, work)
    table.write_text("one method")
    assert Steps(tmp_path).do("reweight", 1, work)
    assert table.read_text() == "all methods"


def test_steps_that_add_to_one_file_are_all_up_to_date(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("")

    def adding(what: str) -> Done:
        notes.write_text(notes.read_text() + what)
        return Done([notes], what)

    for name in ("ablate", "reweight"):
        assert Steps(tmp_path).do(name, 1, lambda name=name: adding(name))  # type: ignore[misc]
    for name in ("ablate", "reweight"):
        assert not Steps(tmp_path).do(name, 1, lambda: adding("again"))


def test_a_failed_step_leaves_no_record(tmp_path: Path) -> None:
    def fail() -> Done:
        raise ValueError("no")

    Steps(tmp_path).do("a", 1, lambda: Done([], "fine"))
    with pytest.raises(ValueError, match="no"):
        Steps(tmp_path).do("a", 2, fail)
    # the first record is gone from the disk, too: its files may have been half replaced
    assert Steps(tmp_path).do("a", 1, lambda: Done([], "again"))


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
