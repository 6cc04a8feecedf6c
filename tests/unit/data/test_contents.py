"""A data set's fingerprint follows what its files hold, and unchanged files are read once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fake_releases import write_wav

from residual_audio.data import contents
from residual_audio.data.contents import content_digests
from residual_audio.data.registry import load_dataset


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Files whose bytes were read, with a cache of its own."""
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))
    seen: list[Path] = []
    read = contents.sha256_file
    monkeypatch.setattr(contents, "sha256_file", lambda path: [seen.append(path), read(path)][1])
    return seen


def _old(path: Path) -> None:
    """As if it had been there for an hour (its time of change stays now)."""
    os.utime(path, ns=(time.time_ns() - 3600 * 10**9,) * 2)


def _pair(root: Path) -> tuple[Path, Path]:
    files = root / "dog" / "a.wav", root / "rain" / "bb.wav"
    for file in files:
        write_wav(file)
        _old(file)
    assert files[0].stat().st_size == files[1].stat().st_size
    return files


def test_files_of_one_size_exchanged_change_the_fingerprint(tmp_path: Path) -> None:
    dog, rain = _pair(tmp_path / "data")
    before = load_dataset("folder", tmp_path / "data").fingerprint()
    dog.rename(tmp_path / "kept")
    rain.rename(dog)
    (tmp_path / "kept").rename(rain)
    assert load_dataset("folder", tmp_path / "data").fingerprint() != before


def test_one_byte_changed_in_place_with_its_time_put_back(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_TICK_NS", 0)
    dog, _ = _pair(tmp_path / "data")
    before = content_digests([dog])
    data = bytearray(dog.read_bytes())
    data[-1] ^= 1
    times = dog.stat().st_atime_ns, dog.stat().st_mtime_ns
    time.sleep(0.02)  # beyond one tick of the clock that stamps files
    dog.write_bytes(data)
    os.utime(dog, ns=times)
    assert content_digests([dog]) != before


def test_unchanged_files_are_not_read_twice(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_TICK_NS", 0)
    files = _pair(tmp_path / "data")
    time.sleep(0.02)
    first = content_digests(files)
    assert sorted(reads) == sorted(files)
    assert content_digests(files) == first
    assert len(reads) == 2


def test_a_file_changed_a_moment_ago_is_read_again(tmp_path: Path, reads: list[Path]) -> None:
    dog, _ = _pair(tmp_path / "data")
    content_digests([dog])
    content_digests([dog])
    assert len(reads) == 2


def test_damaged_cache_is_not_believed(
    tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "_TICK_NS", 0)
    dog, _ = _pair(tmp_path / "data")
    time.sleep(0.02)
    before = content_digests([dog])
    (kept,) = (tmp_path / "cache" / "contents").rglob("*.json")
    data = bytearray(kept.read_bytes())
    data[-10] ^= 1
    kept.write_bytes(data)
    assert content_digests([dog]) == before
    assert len(reads) == 2


def test_missing_files_folders_and_pipes_have_no_content(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert content_digests([tmp_path / "none", tmp_path, tmp_path / "pipe"]) == [None] * 3


def test_what_is_known_of_a_folder_is_read_once_for_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    monkeypatch.setattr(contents, "_read", lambda path: opened.append(path) or {})
    content_digests([tmp_path / name for name in ("a.wav", "b.wav", "c.wav")])
    assert len(opened) == 1
