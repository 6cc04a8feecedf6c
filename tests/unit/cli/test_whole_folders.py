"""Folders where files are asked for; every command that embeds says which clips it could not use;
what kinds of model there are and what one was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from residual_audio.cli.app import build
from residual_audio.errors import ModelError
from residual_audio.models.registry import load_model

runner = CliRunner()
MODEL = ("-m", "htsat-tiny-random")


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("given") / "my sounds"
    rng = np.random.default_rng(0)
    for label in ("high", "low"):
        (folder / label).mkdir(parents=True)
        for i in range(3):
            soundfile.write(folder / label / f"{i}.wav", rng.normal(0, 0.1, 16_000), 16_000)
    soundfile.write(folder / "low" / "silent.wav", np.zeros(16_000), 16_000)
    (folder / "low" / "broken.wav").write_bytes(b"RIFFjunk")
    (folder / "notes.txt").write_text("no sound")
    return folder


def test_a_folder_is_the_files_below_it(sounds: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.npz"
    found = runner.invoke(build(), ["embed", str(sounds), *MODEL, "-o", str(out)])
    assert found.exit_code == 3, found.output
    with np.load(out) as read:
        names = read["files"].tolist()
    want = sorted(path for path in sounds.rglob("*.wav") if path.name != "broken.wav")
    assert names == [str(path) for path in want]
    call = ["classify", str(sounds / "high"), "--labels", "rain,dog", "--json"]
    found = runner.invoke(build(), call)
    assert found.exit_code == 0, found.output
    assert [Path(row["file"]).name for row in json.loads(found.stdout)] == [
        "0.wav", "1.wav", "2.wav",
    ]  # fmt: skip


def test_probe_and_compare_name_what_they_could_not_use(
    sounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["--root", str(sounds), "--no-cache"]
    for call in (["probe", "-m", "nano", "--halves", "2"], ["compare", "nano"]):
        found = runner.invoke(build(), [*call, *common])
        assert found.exit_code == 3, found.output
        assert "low/broken.wav: " in found.stderr
        assert "low/silent.wav: silent" in found.stderr
        said = runner.invoke(build(), [*call, *common, "--json"])
        assert said.exit_code == 3
        assert "low/broken.wav" in said.stdout


def test_an_audio_only_model_is_probed(
    sounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = ["probe", *MODEL, "--root", str(sounds), "--halves", "2", "--no-cache"]
    found = runner.invoke(build(), call)
    assert found.exit_code == 3, found.output
    assert "rankme_audio" in found.stdout
    assert "rankme_text" not in found.stdout
    assert "no text side" in found.stderr


def test_random_weights_were_trained_on_nothing() -> None:
    shown = runner.invoke(build(), ["models", "show", "htsat-tiny-random"]).stdout
    assert "nothing: random weights" in shown
    nano = runner.invoke(build(), ["models", "show", "nano"]).stdout
    assert "esc50 folds 1, 2, 3" in nano
    assert " )" not in nano


def test_a_config_without_a_type_is_called_that(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for family in ("hf", "ast", "whisper", "pe-audio"):
        with pytest.raises(ModelError, match="names no model_type"):
            load_model(f"{family}:{tmp_path}")
