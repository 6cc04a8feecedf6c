"""One progress line for all long work, and one answer to Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from residual_audio.cli import terminal
from residual_audio.cli.app import build
from residual_audio.progress import Progress


def test_a_line_says_step_count_rate_and_time_left() -> None:
    lines = terminal.Lines()
    lines.step("extract", 2000)
    lines.advance(500)
    assert lines.line(50.0) == "extract: 500 of 2,000 clips, 10/s, 2.5 min left"
    lines.step("drawing", unit="figures")
    assert lines.line(1.0) == "drawing …"
    lines.advance(3)
    assert lines.line(1.0) == "drawing: 3 figures, 3/s"


def test_in_a_pipe_lines_come_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal.watching() as progress:
        progress.step("extract", 10)
        progress.advance(5)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(terminal, "EVERY_S", 0.0)
        progress.advance(1)
        assert "extract: 6 of 10 clips" in capsys.readouterr().err


def test_every_step_has_its_own_count_on_a_terminal() -> None:
    with terminal._bar() as bar:
        line = terminal.Line(bar)
        line.step("extract", 205)
        line.advance(65)
        assert terminal._count(bar.tasks[0]).startswith("65 of 205 clips")
        line.step("analyse", 12, "parts")
        assert len(bar.tasks) == 1
        assert terminal._count(bar.tasks[0]) == "0 of 12 parts"


def test_quiet_draws_nothing_but_knows_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.watching(quiet=True) as progress:
        progress.step("extract", 10)
        progress.note("a line")
        progress.keeps("finished shards are kept")
    assert capsys.readouterr().err == ""
    assert terminal.farewell() == "stopped: finished shards are kept"


def test_stopping_any_command_exits_130_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("residual_audio.models.doctor.examine", stop)
    found = CliRunner().invoke(build(), ["doctor"])
    assert found.exit_code == 130
    assert found.stderr.count("\n") == 1
    assert found.stderr.startswith("stopped: ")


SYNTHETIC = ["--model", "htsat-tiny-random", "--data-option", "n_clips=5000"]


@pytest.mark.parametrize(
    ("command", "sign", "sentence"),
    [
        (["extract", *SYNTHETIC, "--shard-size", "8"], "run/store", "finished shards"),
        (["run", *SYNTHETIC], "run/store", "finished shards"),
        (["datasets", "make", "synthetic", "--n", "100000"], "run", "made so far are in"),
    ],
    ids=["extract", "run", "datasets make"],
)
def test_ctrl_c_says_what_is_kept(
    tmp_path: Path, command: list[str], sign: str, sentence: str
) -> None:
    call = [sys.executable, "-m", "residual_audio", *command, "--out", str(tmp_path / "run")]
    child = subprocess.Popen(
        call,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        # a shell starts background jobs with SIGINT ignored, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    begun = time.monotonic()
    while not (tmp_path / sign).exists():
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() - begun < 120
        time.sleep(0.2)
    time.sleep(1.0)
    os.kill(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130, said
    assert said.count("stopped: ") == 1
    assert sentence in said
    assert "Traceback" not in said


def test_the_default_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Progress()
    silent.step("x", 3)
    silent.advance()
    silent.note("y")
    silent.keeps("z")
    assert capsys.readouterr() == ("", "")


def test_lines_of_text_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    from residual_audio.cli.output import say

    say("odd: a\x1b[2J\rb\u202e.wav: silent\nnext line")
    assert capsys.readouterr().out == "odd: a\\x1b[2J\\rb\\u202e.wav: silent\nnext line\n"


def test_a_model_called_clap_is_no_applause(capsys: pytest.CaptureFixture[str]) -> None:
    from residual_audio.cli.output import print_table

    print_table(["hf:clap: x"], [["hf:clap: y"]], "hf:clap: z")
    said = capsys.readouterr().out
    assert all(f"hf:clap: {letter}" in said for letter in "xyz")
