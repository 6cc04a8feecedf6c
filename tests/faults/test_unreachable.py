"""Files that cannot be opened now are not bad for ever; bad files do not end a run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.errors import DatasetError
from residual_audio.extraction import extraction
from residual_audio.extraction.extraction import Extraction
from residual_audio.progress import Progress
from residual_audio.store.verify import verify_store


def write_sounds(root: Path, n: int) -> None:
    rng = np.random.default_rng(0)
    for i in range(n):
        (root / f"class {i % 2}").mkdir(parents=True, exist_ok=True)
        wave = rng.normal(size=4000) / 10
        soundfile.write(root / f"class {i % 2}" / f"{i:02}.wav", wave, 8000)


def extract(root: Path, out: Path, progress: Progress | None = None) -> Extraction:
    options = {} if progress is None else {"progress": progress}
    dataset = load_dataset("folder", root)
    return extraction.extract(
        tiny_model(), dataset, out, shard_size=4, batch_size=2, n_threads=0, device="cpu", **options
    )


class Moves(Progress):
    """Moves the data away after so many clips."""

    def __init__(self, root: Path, after: int) -> None:
        self.root, self.left = root, after

    def advance(self, n: int = 1, said: str = "") -> None:
        self.left -= n
        if self.left <= 0 and self.root.is_dir():
            self.root.rename(self.root.with_name("away"))


def test_data_moved_away_ends_the_run_and_data_back_finishes_it(tmp_path: Path) -> None:
    write_sounds(tmp_path / "data", 40)
    whole = extract(tmp_path / "data", tmp_path / "whole")
    with pytest.raises(DatasetError, match="10 files in a row could not be opened"):
        extract(tmp_path / "data", tmp_path / "out", Moves(tmp_path / "data", 12))
    (tmp_path / "away").rename(tmp_path / "data")
    again = extract(tmp_path / "data", tmp_path / "out")
    assert again.skipped == {}
    assert again.n_shards_made < 10
    np.testing.assert_array_equal(again.store.embedding(), whole.store.embedding())


def test_a_few_files_out_of_reach_are_tried_again(tmp_path: Path) -> None:
    write_sounds(tmp_path / "data", 12)
    lost = tmp_path / "data" / "class 1" / "05.wav"

    class Hides(Progress):
        def advance(self, n: int = 1, said: str = "") -> None:
            if lost.is_file():
                lost.rename(tmp_path / "hidden")

    first = extract(tmp_path / "data", tmp_path / "out", Hides())
    assert set(first.skipped) == {"class 1/05.wav"}
    (tmp_path / "hidden").rename(lost)
    again = extract(tmp_path / "data", tmp_path / "out")
    assert again.skipped == {}
    assert again.n_shards_made == 1
    assert verify_store(tmp_path / "out") == []
    assert extract(tmp_path / "data", tmp_path / "out").n_shards_made == 0


BAD = {
    "loud.wav": lambda path: soundfile.write(path, np.full(4000, 1e20), 8000, subtype="FLOAT"),
    "no rate.caf": lambda path: path.write_bytes(
        b"caff\0\1\0\0desc" + (32).to_bytes(8, "big") + bytes(32) + b"data" + bytes(8)
    ),
    "nan.wav": lambda path: soundfile.write(path, np.full(99, np.nan), 8000, subtype="FLOAT"),
    "empty.flac": lambda path: path.write_bytes(b""),
    "text.mp3": lambda path: path.write_text("not found"),
    "loop.wav": lambda path: path.symlink_to(path.name),
    "device.wav": lambda path: path.symlink_to("/dev/zero"),
    "pipe.wav": os.mkfifo,
}


def test_bad_files_are_skipped_and_stay_skipped(tmp_path: Path) -> None:
    write_sounds(tmp_path / "data", 4)
    for name, make in BAD.items():
        make(tmp_path / "data" / "class 0" / name)
    found = extract(tmp_path / "data", tmp_path / "out")
    assert found.n_ok == 4
    assert set(found.skipped) == {f"class 0/{name}" for name in BAD}
    assert all("the clip" in why or "holds" in why for why in found.skipped.values())
    assert extract(tmp_path / "data", tmp_path / "out").n_shards_made == 0


def test_names_that_are_not_utf8_have_rows(tmp_path: Path) -> None:
    write_sounds(tmp_path / "data", 3)
    odd = os.fsencode(tmp_path / "data" / "class 0") + b"/dog\xff\x1b[2J.wav"
    shutil.copy(tmp_path / "data" / "class 0" / "00.wav", odd)
    found = extract(tmp_path / "data", tmp_path / "out")
    assert found.n_ok == 4
    assert "class 0/dog\\xff\\x1b[2J.wav" in set(found.store.clips["id"])


def test_two_spellings_of_one_name_are_an_error(tmp_path: Path) -> None:
    write_sounds(tmp_path / "data", 2)
    source = tmp_path / "data" / "class 0" / "00.wav"
    for name in ("caf\u00e9.wav", "cafe\u0301.wav"):
        shutil.copy(source, source.with_name(name))
    with pytest.raises(DatasetError, match="two files are both named"):
        load_dataset("folder", tmp_path / "data")
