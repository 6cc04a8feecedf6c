"""Every piece of code on the page about Python runs; the four tasks take six lines at most."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

import residual_audio as ra

PAGE = Path(__file__).resolve().parents[3] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
TASKS = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    sounds = ra.load_dataset("synthetic", n_clips=123)
    for i, clip in enumerate(sounds.select(classes=sounds.classes[:2]).clips):
        path = folder / "sounds" / str(clip.label) / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, sounds.read(clip, 32_000), 32_000)
    for name, clip in zip(("a.wav", "b.wav"), sounds.clips[:2], strict=True):
        soundfile.write(folder / name, sounds.read(clip, 32_000), 32_000)
    return folder


def test_the_page_runs(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path))
    given = {
        "mean": np.zeros(12), "basis": np.eye(12), "variances": np.ones(12), "n": 100,
        "values": np.full(12, 0.5),
    }  # fmt: skip
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), given)  # noqa: S102, our own page
    cache, model = given["cache"], given["model"]
    np.testing.assert_allclose(cache.contributions().total(), cache.latent, atol=1e-4)
    assert 0 < given["fitted"].score.n < 36  # two of three folds
    assert model.name == "nano"


def test_tasks_are_short() -> None:
    tasks = [block for block in BLOCKS if "import residual_audio" in block][1 : TASKS + 1]
    assert len(tasks) == TASKS
    assert max(len(block.strip().splitlines()) for block in tasks) <= 6
