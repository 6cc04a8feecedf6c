"""Crashes, kills, writers at once and limits: quick forms of what `bench faults` runs at length."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from held import assert_held

from residual_audio import files
from residual_audio.benchmarks.faults.children import in_child
from residual_audio.benchmarks.faults.crashes import chosen_moments, contents, crash_everywhere
from residual_audio.benchmarks.faults.filmed import film, read_film
from residual_audio.benchmarks.faults.full_disks import full_disk
from residual_audio.benchmarks.faults.kills import kill_at_random
from residual_audio.benchmarks.faults.limits import within_limits
from residual_audio.benchmarks.faults.works import WORKS, Work, extract_small
from residual_audio.benchmarks.faults.writers import at_once


def some(*names: str) -> list[Work]:
    return [work for work in WORKS if work.name in names]


def test_crashes_at_every_moment_of_every_write() -> None:
    assert_held(crash_everywhere(works=some("extract", "convert", "export"), most=3))


def test_crashes_of_training_and_of_steps_of_a_run() -> None:
    assert_held(crash_everywhere(works=some("train", "evaluate"), most=2))


def two_parts(out: Path, careless: bool = False) -> None:
    """Writes `a`, and then `b`; a mark after each."""
    for i, name in enumerate("ab"):
        if not (out / "steps.json").is_file() or i >= len(files.read_json(out / "steps.json")):
            was_there = (out / name).is_file()
            files.write_text(out / name, "twice" if was_there and careless else "once")
            files.write_json(out / "steps.json", {f"{j}": {"files": {}} for j in range(i + 1)})


@pytest.mark.parametrize("careless", [False, True])
def test_crashes_of_work_in_parts(careless: bool) -> None:
    """A start need not go on beyond the part it was killed in; what it does wrong is found."""
    work = Work("two parts", partial(two_parts, careless=careless), marks="steps.json")
    found = crash_everywhere(works=[work])[0]
    assert found.tried == 20
    assert found.held == (10 if careless else 20)


def test_every_command_that_writes_is_crashed() -> None:
    """The long form has them all, at every moment."""
    names = ("extract", "analyse", "ablate", "reweight", "evaluate", "listen", "report", "atlas",
             "export", "train", "run", "cache")  # fmt: skip
    assert set(names) <= {work.name for work in WORKS}
    assert chosen_moments(10, None) == list(range(10))
    assert chosen_moments(10, 3) == [0, 4, 8]


def test_a_film_shows_what_a_kill_leaves(tmp_path: Path) -> None:
    """States that crashes start from are seen in one run: killed there, a process leaves them."""
    assert in_child(partial(film, extract_small, tmp_path / "whole", tmp_path / "film")) == 0
    found = read_film(tmp_path / "film")
    n = len(found.moments)
    kinds = [moment.partition(" ")[0] for moment, _ in found.moments]
    assert set(kinds) == {"begin", "written", "synced", "renamed", "durable"}
    for moment in (0, n // 2, n // 2 + 1, n - 1):
        killed = tmp_path / f"killed-{moment}"
        assert in_child(partial(_killed_at, moment, killed)) == -signal.SIGKILL
        shown = found.show(found.moments[moment][1], tmp_path / f"shown-{moment}")
        assert _seen(killed) == _seen(shown)


def _killed_at(moment: int, out: Path) -> None:
    n = 0

    def watch(what: files.Moment, path: Path) -> None:
        nonlocal n
        if n == moment:
            if what == "written":
                os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        n += 1

    files.watch = watch
    extract_small(out)


def _seen(folder: Path) -> dict[str, str]:
    """Temporary names and holders of locks have the number of their process in them; how much of
    a temporary file is there makes no difference."""
    found = {n: d for n, d in contents(folder).items() if not n.endswith("-holder")}
    passing = {n.rpartition(".")[0].rpartition(".")[0]: "" for n in found if files.is_temporary(n)}
    return {n: digest for n, digest in found.items() if not files.is_temporary(n)} | passing


def test_full_disks_and_other_limits_are_one_sentence() -> None:
    assert_held(within_limits(most=2))


def test_writers_at_once_and_sigterm() -> None:
    assert_held(at_once(rounds=1))


def test_kills_at_random() -> None:
    assert_held(kill_at_random(kills={"one process": 2, "SIGTERM": 1}))


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from residual_audio.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as t:\n"
        "    t.write_bytes(b'half'); os._exit(9)"
    )
    target = tmp_path / "x.json"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code, str(target)], check=False)
        assert [files.is_temporary(path.name) for path in tmp_path.iterdir()] == [True]
    files.write_text(target, "whole")
    assert os.listdir(tmp_path) == ["x.json"]


def test_the_file_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    with files.replacing(target) as temporary:
        temporary.write_bytes(b"first")
        files.write_text(target, "second")
        assert temporary.exists()
    assert target.read_bytes() == b"first"


def test_a_full_disk_at_any_write_of_any_work() -> None:
    for work in some("train", "export"):
        assert_held(full_disk(work, most=2))
