"""Commands that read or draw for long show how far they are, and say what is kept when stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import tiny_model
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.cli import terminal
from residual_audio.cli.app import build

runner = CliRunner()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sounds = ra.load_dataset("synthetic", classes="rain,wind", n_clips=8)
    return ra.extract(tiny_model(), sounds, tmp_path_factory.mktemp("run") / "mine").folder


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (["store", "verify", "RUN"], "reading every byte: 1 of"),
        (["store", "export", "RUN", "--to", "OUT.npz"], "copying: 1 of"),
        (["analyse", "--from-table", "TABLE", "--out", "OUT"], "drawing: 1 of"),
    ],
)
def test_the_line_is_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], step: str
) -> None:
    monkeypatch.setattr(terminal, "EVERY_S", 0.0)
    table = tmp_path / "heads.csv"
    table.write_text("head_id,stage,block,head,block_index,pca_95\ns0.b0.h0,0,0,0,0,3\n")
    places = {"RUN": str(run), "OUT": str(tmp_path / "x"), "TABLE": str(table)}
    places["OUT.npz"] = str(tmp_path / "x.npz")
    found = runner.invoke(build(), [places.get(word, word) for word in words])
    assert found.exit_code == 0, found.output
    assert step in found.stderr


def test_a_stopped_check_says_that_nothing_was_touched(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("residual_audio.store.verify._problem", stop)
    found = runner.invoke(build(), ["store", "verify", str(run)])
    assert found.exit_code == 130
    assert "stopped: nothing is written by a check" in found.stderr


def test_a_library_that_falls_over_ctrl_c_is_still_a_stop(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Optuna does between two trials: an error of its own, raised in the midst of Ctrl-C."""

    def fall(*_: object) -> str:
        try:
            raise KeyboardInterrupt
        finally:
            raise UnboundLocalError("updated_state")

    monkeypatch.setattr("residual_audio.store.verify._problem", fall)
    found = runner.invoke(build(), ["store", "verify", str(run)])
    assert found.exit_code == 130
    assert "stopped: " in found.stderr
