"""Sounds inside tar shards and parquet files: as if they lay in a folder, and never unpacked."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from containers import RATE_HZ, add, sound, wave, write_tars

from residual_audio.audio.decode import SoundBytes, load_audio
from residual_audio.data import contents
from residual_audio.data.registry import load_dataset, parse_name
from residual_audio.data.webdataset import shard_files
from residual_audio.errors import AudioError, DatasetError, InputError


def test_tar_shards_are_read_in_order(tmp_path) -> None:
    pattern = write_tars(tmp_path)
    data = load_dataset(f"wds:{pattern}", label="category", group="source")
    assert len(data) == 10
    assert [clip.id for clip in data.clips][:5] == [
        "set-000/0000", "set-000/0001", "set-000/0002", "set-000/0003", "set-001/0004",
    ]  # fmt: skip
    assert data.classes == ("class 0", "class 1", "class 2")
    assert data.clips[4].captions == ("sound 4",)
    assert data.clips[4].group == data.clips[5].group == "2"
    for i, clip in enumerate(data.clips):
        (tmp_path / "x").write_bytes(sound(i, ("WAV", "FLAC", "OGG", "MP3")[i % 4]))
        np.testing.assert_array_equal(data.read(clip, 4000), load_audio(tmp_path / "x", 4000))
    assert list(data.clips) == [data.clips[i] for i in range(10)] == list(data.clips[:])
    assert pickle.loads(pickle.dumps(data.clips)) == data.clips  # noqa: S301
    assert {p.suffix for p in tmp_path.iterdir()} == {".tar", ""}
    few = data.select(limit=3)
    assert len({clip.label for clip in few.clips}) == 3
    assert few.fingerprint() != data.fingerprint()


def test_the_fingerprint_follows_what_the_archives_hold_not_where_they_lie(tmp_path) -> None:
    for name in ("a", "c"):
        (tmp_path / name).mkdir()
    pattern = write_tars(tmp_path / "a")
    first = load_dataset(f"wds:{pattern}").fingerprint()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert load_dataset(f"wds:{pattern.replace('/a/', '/b/')}").fingerprint() == first
    assert load_dataset(f"wds:{write_tars(tmp_path / 'c', n=9)}").fingerprint() != first


def test_one_byte_of_a_sound_changes_the_fingerprint_of_all_containers(tmp_path) -> None:
    """Sizes and places stay: it is what the archives hold that is looked at."""
    tar = Path(write_tars(tmp_path, n=4).replace("{000..000}", "000"))
    whole = load_dataset(f"wds:{tar}")
    parquet = tmp_path / "part.parquet"
    rows = [{"audio": {"bytes": sound(i), "path": f"{i}.wav"}} for i in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), parquet, compression="none")
    for name, path, inside in (
        (f"wds:{tar}", tar, whole.clips[0].inside[0] + 60),
        (f"hf:{parquet}", parquet, parquet.read_bytes().index(sound(1)) + 60),
    ):
        data = load_dataset(name)
        before, few = data.fingerprint(), data.select(limit=2).fingerprint()
        bits = bytearray(path.read_bytes())
        bits[inside] ^= 1
        path.write_bytes(bits)
        after = load_dataset(name)
        assert after.recipe == data.recipe
        assert after.fingerprint() != before
        assert after.select(limit=2).fingerprint() != few


def test_unchanged_archives_are_not_read_twice(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(contents, "_TICK_NS", 0)
    read, seen = contents.sha256_file, []
    monkeypatch.setattr(contents, "sha256_file", lambda path: [seen.append(path), read(path)][1])
    data = load_dataset(f"wds:{write_tars(tmp_path)}")
    time.sleep(0.02)
    assert data.fingerprint() == data.fingerprint()
    assert len(seen) == len(data.archives()) > 1


def test_hostile_and_broken_archives_are_refused(tmp_path) -> None:
    pattern = write_tars(tmp_path, n=4)
    whole = Path(pattern.replace("{000..000}", "000")).read_bytes()

    def refused(data: bytes, match: str, name: str = "bad.tar") -> None:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DatasetError, match=match):
            load_dataset(f"wds:{tmp_path / name}")

    def made(*members: tuple[str, bytes]) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for member, data in members:
                add(tar, member, data)
        return buffer.getvalue()

    refused(whole[:1800], "cut short or damaged|not a whole plain tar")
    refused(b"not a tar file at all" * 100, "not a whole plain tar")
    refused(made(("../up.wav", sound(0))), "leaves the folder")
    refused(made(("/abs.wav", sound(0))), "leaves the folder")
    refused(made(("a.wav", sound(0)), ("a.flac", sound(0))), "two sounds of the name 'a'")
    refused(made(("a.wav", sound(0)), ("b.wav", sound(1)), ("a.wav", sound(2))), "stands twice")
    refused(made(("a.json", b"{"), ("a.wav", sound(0))), "is not JSON")
    refused(made(("a.json", b"[" * 100_000), ("a.wav", sound(0))), "is not JSON")
    refused(made(("a.json", b" " * 2_000_000)), "bytes of text")
    refused(made(("a.txt", b"words")), "there is no sound")
    refused(whole, "not called .tar", name="x.tar.gz")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        link = tarfile.TarInfo("a.wav")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    refused(buffer.getvalue(), "there is no sound")
    with pytest.raises(DatasetError, match="no column 'kind'"):
        load_dataset(f"wds:{pattern}", label="kind")


def test_patterns(tmp_path) -> None:
    for name in ("a-00.tar", "a-01.tar", "a-02.tar"):
        (tmp_path / name).touch()
    there = [path.name for path in shard_files(f"{tmp_path}/a-{{00..01}}.tar")]
    assert there == ["a-00.tar", "a-01.tar"]
    assert len(shard_files(f"{tmp_path}/a-*.tar")) == 3
    assert parse_name("wds:/a=b,c=d/{0..1}.tar") == ("wds", {"source": "/a=b,c=d/{0..1}.tar"})
    for pattern, match in (("a-{00..09}.tar", "no tar file"), ("b-*.tar", "no file is called")):
        with pytest.raises(DatasetError, match=match):
            shard_files(f"{tmp_path}/{pattern}")
    with pytest.raises(InputError, match="no range"):
        shard_files(f"{tmp_path}/a-{{02..01}}.tar")
    with pytest.raises(InputError, match="which shards"):
        load_dataset("wds")


def write_parquet(path: Path, start: int, n: int, names: bool = False) -> None:
    """As the Hub stores sound."""
    rows = [
        {
            "audio": {"bytes": sound(i, "FLAC"), "path": f"{i}.flac"},
            "label": i % 2 if names else f"kind_{i % 2}",
            "fold": 1 + i % 2,
            "said": [f"sound {i}", "again"],
        }
        for i in range(start, start + n)
    ]
    table = pa.Table.from_pylist(rows)
    if names:
        told = {"info": {"features": {"label": {"names": ["a_dog", "rain"]}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(told)})
    pq.write_table(table, path, row_group_size=3)


def test_parquet_as_the_hub_stores_it(tmp_path) -> None:
    write_parquet(tmp_path / "train-00000-of-00002.parquet", 0, 7, names=True)
    write_parquet(tmp_path / "train-00001-of-00002.parquet", 7, 2, names=True)
    write_parquet(tmp_path / "test-00000-of-00001.parquet", 9, 1, names=True)
    data = load_dataset(f"hf:{tmp_path}", split="train", label="label", caption="said", fold="fold")
    assert len(data) == 9
    assert data.classes == ("a dog", "rain")
    assert data.folds == {1: "1", 2: "2"}
    assert data.clips[8].id == "train-00001-of-00002/0-1/8.flac"
    assert data.clips[8].captions == ("sound 8", "again")
    again = pickle.loads(pickle.dumps(data))  # noqa: S301
    for i in (0, 8, 3, 6, 2):
        found = again.read(again.clips[i], RATE_HZ)
        np.testing.assert_allclose(found, wave(i), atol=1e-4)
    assert len(load_dataset(f"hf:{tmp_path}")) == 10
    with pytest.raises(DatasetError, match=r"no column 'kind' for the label; it has: audio, label"):
        load_dataset(f"hf:{tmp_path}", label="kind")
    with pytest.raises(DatasetError, match="split 'dev'"):
        load_dataset(f"hf:{tmp_path}", split="dev")


def test_parquet_that_is_none(tmp_path, monkeypatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 but no more")
    with pytest.raises(DatasetError, match="not a whole parquet file"):
        load_dataset(f"hf:{tmp_path}")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DatasetError, match=r"0 columns of \{bytes, path\}"):
        load_dataset(f"hf:{tmp_path}")
    rows = [{"audio": {"bytes": None, "path": "a.wav"}}, {"audio": {"bytes": b"RI", "path": None}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    data = load_dataset(f"hf:{tmp_path}")
    with pytest.raises(AudioError, match="has no bytes"):
        data.read(data.clips[0], RATE_HZ)
    with pytest.raises(AudioError, match="a/0-1"):
        data.read(data.clips[1], RATE_HZ)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DatasetError, match="not in the cache, and HF_HUB_OFFLINE is set"):
        load_dataset("hf:nobody/nothing-at-all")
    with pytest.raises(DatasetError, match="no name of a repository"):
        load_dataset("hf:/no/such/folder")


def test_bytes_are_decoded_like_files(tmp_path) -> None:
    for kind in ("WAV", "FLAC", "OGG", "MP3"):
        path = tmp_path / "sound"
        path.write_bytes(sound(3, kind))
        inside = SoundBytes("inside", path.read_bytes())
        np.testing.assert_array_equal(load_audio(inside, 5000), load_audio(path, 5000))
        np.testing.assert_array_equal(load_audio(inside, 5000, 0.02), load_audio(path, 5000, 0.02))
    with pytest.raises(AudioError, match="'inside' is empty"):
        load_audio(SoundBytes("inside", b""), 5000)
    with pytest.raises(AudioError, match="'inside' is cut short"):
        load_audio(SoundBytes("inside", sound(3)[:200]), 5000)
