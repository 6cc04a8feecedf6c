"""Distances between folders of sound, and the statistics kept of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from evaluation_fakes import D, FakeModel
from music_fakes import sounds

from residual_audio.errors import InputError
from residual_audio.generation.fad import compare_sides
from residual_audio.generation.sound_side import read_side, read_statistics, write_statistics
from residual_audio.metrics import frechet
from residual_audio.report import figures_evaluation as plots
from residual_audio.report.style import save


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))


def test_fad_of_folders(tmp_path: Path) -> None:
    model = FakeModel()
    left = read_side(sounds(tmp_path / "ref", 30, 0), model)
    same = read_side(sounds(tmp_path / "same", 30, 1), model)
    far = read_side(sounds(tmp_path / "far", 30, 2, shift=0.1), model)
    assert left.gaussian.n == 60
    near = compare_sides(left, same, model)
    away = compare_sides(left, far, model).result
    assert [s.name for s in near.result.scores] == ["fad", "fad_infinity", "mmd"]
    expected = frechet.frechet_distance(left.gaussian, same.gaussian)
    assert near.result["fad"].value == expected
    assert near.result["fad_infinity"].value < expected / 2
    assert near.result["fad_infinity"].low < 0.05
    assert near.result["mmd"].low < 0 < near.result["mmd"].high
    assert away["fad"].value > 3 * near.result["fad"].value
    assert away["mmd"].low > 0
    assert len(near.result.per_item["file"]) == 30  # type: ignore[index]
    assert near.result.per_item["windows"] == [2] * 30  # type: ignore[index]
    assert near.extrapolated is not None
    save(plots.extrapolation(near.extrapolated), tmp_path / "line.png")
    itself = compare_sides(left, left, model).result
    assert itself["fad"].value == pytest.approx(0, abs=1e-10)


def test_fad_warns_when_there_is_too_little(tmp_path: Path) -> None:
    model = FakeModel()
    left = read_side(sounds(tmp_path / "ref", 3, 0), model)
    right = read_side(sounds(tmp_path / "gen", 5, 1), model)
    result = compare_sides(left, right, model).result
    said = " ".join(result.details["warnings"])
    assert "below 2d = 32" in said
    assert "at least four files" in said
    assert [s.name for s in result.scores] == ["fad", "mmd"]
    with pytest.raises(InputError, match="1 window"):
        read_side(sounds(tmp_path / "one", 1, 0, windows=1), model)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no audio file"):
        read_side(tmp_path / "empty", model)


def test_constant_embeddings_have_a_distance_and_a_reason(tmp_path: Path) -> None:
    for folder, level in (("ref", 0.1), ("gen", 0.2)):
        (tmp_path / folder).mkdir()
        for i in range(5):
            wave = np.full(D, level, dtype=np.float32)
            wave[0] = -level if folder == "gen" else level
            soundfile.write(tmp_path / folder / f"{i}.wav", wave, 1000, subtype="FLOAT")
    model = FakeModel()
    sides = [read_side(tmp_path / folder, model) for folder in ("ref", "gen")]
    result = compare_sides(*sides, model).result
    # two points: the squared distance between them
    assert result["fad"].value == pytest.approx(4 / D, rel=1e-4)
    assert result["fad_infinity"].value == pytest.approx(4 / D, rel=1e-4)
    assert any("all the same" in warning for warning in result.details["warnings"])


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    folder = sounds(tmp_path / "gen", 4, 0)
    (folder / "broken.wav").write_text("not audio")
    side = read_side(folder, FakeModel())
    assert list(side.skipped) == ["broken.wav"]
    assert side.gaussian.n == 8


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_statistics_in_and_out(tmp_path: Path, suffix: str) -> None:
    model = FakeModel()
    left = read_side(sounds(tmp_path / "ref", 20, 0), model)
    right = read_side(sounds(tmp_path / "gen", 20, 1), model)
    path = tmp_path / f"stats{suffix}"
    write_statistics(left, model, path)
    back = read_side(path, model)
    assert back.gaussian.n == 40
    result = compare_sides(back, right, model).result
    assert result["fad"].value == pytest.approx(
        compare_sides(left, right, model).result["fad"].value, rel=1e-9
    )
    assert "of the reference remains" in " ".join(result.details["warnings"])
    assert [s.name for s in result.scores] == ["fad", "fad_infinity"]
    with pytest.raises(InputError, match="made with model 'fake', not with 'other'"):
        read_side(path, FakeModel("other"))
    with pytest.raises(InputError, match="not statistics"):
        compare_sides(left, back, model)


def test_foreign_and_broken_statistics(tmp_path: Path) -> None:
    plain = tmp_path / "plain.npz"
    np.savez(plain, mu=np.zeros(D), sigma=np.eye(D))
    side = read_statistics(plain, FakeModel())
    assert side.gaussian.n == 0
    np.savez(tmp_path / "odd.npz", a=np.zeros(2))
    with pytest.raises(InputError, match="no mu and sigma"):
        read_statistics(tmp_path / "odd.npz")
    (tmp_path / "bad.npz").write_text("x")
    with pytest.raises(InputError, match="cannot be read as statistics"):
        read_statistics(tmp_path / "bad.npz")
    right = read_side(sounds(tmp_path / "gen", 4, 1), FakeModel())
    with pytest.raises(InputError, match=r"written as \.npz"):
        write_statistics(right, FakeModel(), tmp_path / "x.txt")
