"""CLAP score beside its chance, and the prompts of generated files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from evaluation_fakes import D, FakeModel

from residual_audio.errors import AudioError, InputError
from residual_audio.generation.clap_score import clap_score
from residual_audio.generation.prompted_files import read_prompts


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))


def _prompted(tmp_path: Path, n: int = 6) -> tuple[Path, FakeModel]:
    folder = tmp_path / "gen"
    folder.mkdir()
    rng = np.random.default_rng(0)
    texts = {}
    for i in range(n):
        wave = rng.normal(size=D).astype(np.float32) * 0.1
        soundfile.write(folder / f"{i}.wav", wave, 1000, subtype="FLOAT")
        texts[f"prompt {i}"] = wave
    return folder, FakeModel(texts=texts)


def test_clap_score_and_its_chance(tmp_path: Path) -> None:
    folder, model = _prompted(tmp_path)
    table = tmp_path / "prompts.csv"
    table.write_text("file,prompt\n" + "".join(f"{i}.wav,prompt {i}\n" for i in range(6)))
    result = clap_score(model, read_prompts(table, folder), root=folder)
    assert result["clap_score"].value == pytest.approx(1, abs=1e-5)
    assert result["clap_score"].chance is not None
    assert result["clap_score"].chance < 0.6
    assert result["pair_auc"].value == 1.0
    assert result["a2t_r1"].value == 1.0
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({f"{i}": f"prompt {(i + 1) % 6}" for i in range(6)}))
    low = clap_score(model, read_prompts(wrong, folder), root=folder)
    assert low["clap_score"].value < 0.6


def test_prompts_beside_the_files_and_bad_ones(tmp_path: Path) -> None:
    folder, _ = _prompted(tmp_path, 2)
    for i in range(2):
        (folder / f"{i}.txt").write_text(f"prompt {i}\n")
    assert [p for _, p in read_prompts(folder, folder)] == ["prompt 0", "prompt 1"]
    lines = tmp_path / "p.jsonl"
    lines.write_text('{"id": "0", "caption": "x"}\n\n{"id": "1", "caption": "y"}\n')
    assert len(read_prompts(lines, folder)) == 2
    lines.write_text('{"id": "0"}\n')
    with pytest.raises(InputError, match="lacks a file"):
        read_prompts(lines, folder)
    lines.write_text('{"id": "9", "caption": "x"}\n')
    with pytest.raises(InputError, match=r"1 of 1 prompts .* '9'"):
        read_prompts(lines, folder)
    lines.write_text("{")
    with pytest.raises(InputError, match="cannot be read as prompts"):
        read_prompts(lines, folder)
    with pytest.raises(InputError, match="no file"):
        read_prompts(tmp_path / "absent.csv", folder)


def test_clap_score_of_one_prompt_and_of_nothing(tmp_path: Path) -> None:
    folder, model = _prompted(tmp_path, 1)
    (item,) = [(folder / "0.wav", "prompt 0")]
    single = clap_score(model, [item], root=folder)
    assert [s.name for s in single.scores] == ["clap_score"]
    assert single["clap_score"].chance is None
    (folder / "0.wav").write_text("")
    with pytest.raises((AudioError, InputError), match="could be read"):
        clap_score(model, [item], root=folder)
