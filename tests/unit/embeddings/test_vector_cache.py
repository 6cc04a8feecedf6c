"""The embedding cache: used, verified, never trusted blindly; bad clips are named."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from evaluation_fakes import D, FakeModel, dataset, labelled

from residual_audio.embeddings.embedder import EmbeddingSettings
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.embeddings.of_folder import audio_files, embed_windows
from residual_audio.embeddings.of_texts import embed_texts
from residual_audio.errors import InputError
from residual_audio.progress import Progress
from residual_audio.types import Clip

NO_CACHE = EmbeddingSettings(cache=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.safetensors"))


def test_second_call_reads_the_cache(cache: Path) -> None:
    data, model = labelled()
    first = embed_clips(model, data)
    assert model.windows_heard == len(data.clips)
    again = embed_clips(model, data)
    assert model.windows_heard == len(data.clips)
    np.testing.assert_array_equal(first.vectors, again.vectors)
    assert again.ids == tuple(c.id for c in data.clips)
    embed_clips(model, data, NO_CACHE)
    assert model.windows_heard == 2 * len(data.clips)
    assert len(_files(cache)) == 1


def test_another_model_policy_or_data_is_another_entry(cache: Path) -> None:
    data, model = labelled()
    embed_clips(model, data)
    embed_clips(FakeModel("other"), data)
    embed_clips(model, data, EmbeddingSettings("tile"))
    embed_clips(model, data.select(folds=[1]))
    assert len(_files(cache)) == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "text"])
def test_damaged_entries_are_made_again(
    cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    data, model = labelled()
    first = embed_clips(model, data)
    (file,) = _files(cache)
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-5] ^= 1
    elif damage == "cut":
        content = content[:-20]
    elif damage == "empty":
        content = bytearray()
    else:
        content = bytearray(b"not a tensor file")
    file.write_bytes(bytes(content))
    with caplog.at_level(logging.WARNING):
        again = embed_clips(model, data)
    assert model.windows_heard == 2 * len(data.clips)
    assert "are not used" in caplog.text
    np.testing.assert_array_equal(first.vectors, again.vectors)
    embed_clips(model, data)
    assert model.windows_heard == 2 * len(data.clips)


def test_a_renamed_entry_is_not_taken_for_another(cache: Path) -> None:
    data, model = labelled()
    embed_clips(model, data)
    (own,) = _files(cache)
    embed_clips(FakeModel("other"), data)
    (other,) = [f for f in _files(cache) if f != own]
    other.write_bytes(own.read_bytes())
    before = FakeModel("other")
    embed_clips(before, data)
    assert before.windows_heard == len(data.clips)


def test_read_only_cache_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(blocked))
    data, model = labelled()
    assert len(embed_clips(model, data)) == len(data.clips)


def test_unreadable_clips_are_named_and_remembered() -> None:
    vectors = {f"c{i}": np.ones(D) * (i + 1) for i in range(5)}
    clips = [Clip(id=name) for name in vectors]
    data = dataset(vectors, clips, broken=["c1", "c3"])
    for _ in range(2):
        found = embed_clips(FakeModel(), data)
        assert found.ids == ("c0", "c2", "c4")
        assert found.skipped == {"c1": "'c1' is empty", "c3": "'c3' is empty"}
    repaired = embed_clips(FakeModel(), dataset(vectors, clips, broken=["c3"]))
    assert repaired.ids == ("c0", "c1", "c2", "c4")  # the cache does not hold on to a bad day
    with pytest.raises(InputError, match="none of 5 clips"):
        embed_clips(FakeModel(), dataset(vectors, clips, broken=list(vectors)), NO_CACHE)
    with pytest.raises(InputError, match="no clip"):
        embed_clips(FakeModel(), dataset({}, []))


class Overflowing(FakeModel):
    """Gives infinity for loud sound."""

    def embed_windows(self, waves: torch.Tensor) -> torch.Tensor:
        return torch.where(waves > 100, torch.inf, waves)[:, :D]


def test_embeddings_that_are_not_finite_are_refused() -> None:
    data = dataset({"a": np.ones(D), "b": np.full(D, 101)}, [Clip(id="a"), Clip(id="b")])
    with pytest.raises(InputError, match="'b' has an embedding that is not finite"):
        embed_clips(Overflowing("loud"), data)


def test_sound_that_is_not_finite_is_skipped_with_its_reason() -> None:
    data = dataset({"a": np.ones(D), "b": np.full(D, np.nan)}, [Clip(id="a"), Clip(id="b")])
    found = embed_clips(FakeModel(), data)
    assert found.ids == ("a",)
    assert "NaN" in found.skipped["b"]


def test_progress_counts_every_clip_once_also_the_unreadable() -> None:
    class Counting(Progress):
        total, done = 0, 0

        def step(self, name: str, total: int | None = None, unit: str = "clips") -> None:
            self.total = total or 0

        def advance(self, n: int = 1, said: str = "") -> None:
            self.done += n

    seen = Counting()
    vectors = {f"c{i}": np.ones(D) * (i + 1) for i in range(21)}
    data = dataset(vectors, [Clip(id=name) for name in vectors], broken=["c3", "c20"])
    embed_clips(FakeModel(), data, NO_CACHE, progress=seen)
    assert (seen.total, seen.done) == (21, 21)


def test_other_errors_are_not_swallowed() -> None:
    with pytest.raises(KeyError):
        embed_clips(FakeModel(), dataset({}, [Clip(id="missing")]))


def test_texts_are_embedded_once_and_returned_in_order() -> None:
    model = FakeModel()
    found = embed_texts(model, ["a", "b", "a"])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found, embed_texts(model, ["a", "b", "a"]))
    with pytest.raises(InputError, match="no text"):
        embed_texts(model, [])


def test_windows_of_files(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "sounds"
    (folder / "sub").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, n in (("a.wav", 3 * D), ("sub/b.wav", D)):
        soundfile.write(folder / name, rng.uniform(-0.5, 0.5, n), 1000, subtype="FLOAT")
    (folder / "notes.txt").write_text("not audio")
    files = audio_files(folder)
    assert [f.name for f in files] == ["a.wav", "b.wav"]
    model = FakeModel()
    found = embed_windows(model, files, root=folder)
    assert found.ids == ("a.wav", "a.wav", "a.wav", "sub/b.wav")
    embed_windows(model, files, root=folder)
    assert model.windows_heard == 4
    # other bytes under the same name are another entry
    soundfile.write(folder / "a.wav", rng.uniform(-0.5, 0.5, 3 * D), 1000, subtype="FLOAT")
    embed_windows(model, files, root=folder)
    assert model.windows_heard == 8
    (tmp_path / "nothing").mkdir()
    with pytest.raises(InputError, match="no audio file"):
        audio_files(tmp_path / "nothing")
    with pytest.raises(InputError, match="not a folder"):
        audio_files(tmp_path / "absent")


def test_nothing_of_the_machine_in_the_cache(cache: Path, tmp_path: Path) -> None:
    data, model = labelled()
    embed_clips(model, data)
    from safetensors import safe_open

    with safe_open(_files(cache)[0], "numpy") as file:
        header = json.dumps(file.metadata())
    assert str(tmp_path) not in header
