"""Clips heard again are the clips that were heard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_model import tiny_model

from residual_audio.data.base import Dataset
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.extraction.same_data import check_same_data
from residual_audio.store import Store


@pytest.fixture
def made(tmp_path: Path) -> tuple[Store, Path]:
    rng = np.random.default_rng(0)
    for name in ("dog/a", "dog/b", "rain/c", "rain/d"):
        path = tmp_path / "data" / f"{name}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, rng.normal(size=4000) / 10, 8000)
    dataset = load_dataset("folder", tmp_path / "data").select(limit=3)
    done = extract(tiny_model(), dataset, tmp_path / "run", n_threads=0, device="cpu")
    return done.store, tmp_path / "data"


def again(root: Path) -> Dataset:
    return load_dataset("folder", root)


def test_the_whole_set_serves_a_store_of_a_part(made: tuple[Store, Path]) -> None:
    store, root = made
    assert len(store.all_clips) < len(again(root))
    check_same_data(store, again(root))


def test_files_exchanged_since_are_refused(made: tuple[Store, Path]) -> None:
    store, root = made
    a, c = root / "dog" / "a.wav", root / "rain" / "c.wav"
    one, other = a.read_bytes(), c.read_bytes()
    assert len(one) == len(other)
    a.write_bytes(other)
    c.write_bytes(one)
    with pytest.raises(InputError, match="are not what they were"):
        check_same_data(store, again(root))


def test_a_clip_that_is_gone_is_named(made: tuple[Store, Path]) -> None:
    store, root = made
    (root / "dog" / "a.wav").unlink()
    with pytest.raises(InputError, match=r"a\.wav"):
        check_same_data(store, again(root))
