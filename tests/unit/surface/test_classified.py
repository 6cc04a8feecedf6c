"""Labels for clips in Python, and what is said of clips that can hardly be heard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_model import tiny_model
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.cli.app import build
from residual_audio.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, silence and a click in two classes."""
    folder = tmp_path_factory.mktemp("sounds")
    rng = np.random.default_rng(0)
    sounds = {
        "a/noise.wav": rng.normal(size=16_000) / 10,
        "a/silence.wav": np.zeros(16_000),
        "b/click.wav": np.array([0.5, -0.5, 0.25]),
        "b/tone.wav": np.sin(np.arange(16_000) / 5) / 2,
    }
    for name, wave in sounds.items():
        (folder / name).parent.mkdir(exist_ok=True)
        soundfile.write(folder / name, wave, 16_000)
    return folder


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.wav"))


def test_scores_of_a_clip_sum_to_one_and_are_those_of_the_vectors() -> None:
    model = tiny_model()
    noise = np.random.default_rng(0).normal(size=(2, 8000)) / 10
    found = ra.classify(model, list(noise), "dog, rain,wind", sample_rate=8000)
    assert len(found) == 6
    prompts = model.embed_text([f"This is a sound of {word}." for word in ("dog", "rain", "wind")])
    logits = model.logit_scale * model.embed_audio(list(noise), sample_rate=8000) @ prompts.T
    best = [("dog", "rain", "wind")[i] for i in logits.argmax(1)]
    assert found.where(found["rank"] == 1)["label"].tolist() == best
    for name in ("waveform 0", "waveform 1"):
        assert found["score"][found["file"] == name].sum() == pytest.approx(1)


def test_what_cannot_or_can_hardly_be_heard_is_named(folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.wav"
    bad.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="silent"):
        found = ra.classify(tiny_model(), [*files(folder), bad], ["dog", "rain"])
    notes = "\n".join(found.notes)
    assert "silence.wav is silent (peak digital zero)" in notes
    assert "click.wav is only" in notes
    assert "bad.wav was skipped" in notes
    assert "noise.wav" not in notes
    with pytest.raises(InputError, match="no label"):
        ra.classify(tiny_model(), files(folder), " , ")
    with pytest.raises(InputError, match="takes a list"):
        ra.classify(tiny_model(), "dog.wav", ["dog"])  # type: ignore[arg-type]


def test_results_and_kept_embeddings_name_odd_clips(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))
    for _ in range(2):  # the second from what the first kept
        found = ra.evaluate(tiny_model(), folder)
        assert set(found.details["remarks"]) == {"a/silence.wav", "b/click.wav"}
        assert found.details["skipped"] == {}


@pytest.mark.parametrize("as_json", [False, True])
def test_commands_name_odd_clips(folder: Path, tmp_path: Path, as_json: bool) -> None:
    listed = [str(path) for path in files(folder)]
    tail = ["--json"] if as_json else []
    for call in (
        ["classify", *listed, "--labels", "dog,rain"],
        ["embed", *listed, "-o", str(tmp_path / "x.npz")],
        ["evaluate", "--root", str(folder), "-o", str(tmp_path), "--no-cache"],
    ):
        done = CliRunner().invoke(build(), [*call, *tail])
        assert done.exit_code == 0, done.output
        text = json.dumps(json.loads(done.stdout)) if as_json else done.stderr
        assert "silence.wav" in text, call[0]
        assert "silent (peak digital zero)" in text, call[0]
        assert "click.wav" in text, call[0]
        assert "ms long" in text, call[0]
