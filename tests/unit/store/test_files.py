"""Files of a store: all or nothing, one writer, damage noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from residual_audio.errors import StoreError
from residual_audio.files import is_temporary, replacing, write_bytes
from residual_audio.store import lock
from residual_audio.store.clips import read_clips, write_clips
from residual_audio.store.manifest import (
    NAME,
    changes,
    fingerprint,
    is_intact,
    read_manifest,
    write_manifest,
)
from residual_audio.store.packing import pack, unpack
from residual_audio.store.tensors import TensorFile, remove_temporary, write_tensors
from residual_audio.types import Clip


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_bytes(path, b"old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.bin"]


def test_temporary_files_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    with replacing(tmp_path / "x.bin") as temporary:
        temporary.write_bytes(b"1")
        name = temporary.name
    assert is_temporary(name)
    (tmp_path / name).write_bytes(b"half")
    remove_temporary(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.bin"]


def test_tensors_round_trip_and_are_the_same_bytes_every_time(tmp_path: Path) -> None:
    arrays = {
        "b/float": np.arange(12, dtype=np.float32).reshape(3, 4),
        "a/double": np.linspace(0, 1, 5),
        "half": np.ones((2, 2), np.float16),
        "rows": np.array([[1, 2]], np.int64),
        "none": np.zeros((0, 7), np.float32),
        "bytes": np.arange(5, dtype=np.uint8),
    }
    for name in ("one", "two"):
        write_tensors(tmp_path / name, arrays, {"z": 1, "a": ["b"]})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    file = TensorFile(tmp_path / "one")
    assert file.note == {"z": 1, "a": ["b"]}
    assert file.names == sorted(arrays)
    for name, array in arrays.items():
        assert file.shape(name) == array.shape
        assert file[name].dtype == array.dtype
        np.testing.assert_array_equal(file[name], array)


def test_a_file_cut_short_after_opening_is_an_error_not_a_crash(tmp_path: Path) -> None:
    write_tensors(tmp_path / "x", {"a": np.zeros((1000, 1000), np.float32)})
    file = TensorFile(tmp_path / "x")
    os.truncate(tmp_path / "x", 10_000)
    with pytest.raises(StoreError, match="'x' is damaged: it was cut short"):
        file["a"]


@pytest.mark.parametrize("damage", ["empty", "short", "header", "truncated"])
def test_damaged_tensor_files_are_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": np.arange(100.0)})
    data = path.read_bytes()
    broken = {
        "empty": b"",
        "short": data[:5],
        "header": data[:9] + b"\xff" + data[10:],
        "truncated": data[:-8],
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(StoreError, match=r"x\.safetensors"):
        TensorFile(path)["a"]


def test_missing_tensor_file_and_array(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="'x' is missing"):
        TensorFile(tmp_path / "x")
    write_tensors(tmp_path / "x", {"a": np.zeros(1)})
    with pytest.raises(StoreError, match="no readable array 'b'"):
        TensorFile(tmp_path / "x")["b"]


finite = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False)


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=3, max_side=6), elements=finite)
)
def test_packing_errs_by_one_rounding_at_most(x: np.ndarray) -> None:
    packed = pack(x)
    assert packed.dtype == np.uint8
    assert packed.shape == (*x.shape[:-1], 3 * x.shape[-1] + 1)
    back = unpack(packed)
    assert back.dtype == np.float32
    largest = np.abs(x).max(-1, keepdims=True).astype(np.float64)
    # 2^(e − 24) where 2^e is the power of two above the largest, or the tiniest that is kept
    bound = np.maximum(largest * 2.0**-23, 2.0**-150)
    assert (np.abs(back.astype(np.float64) - x) <= bound).all()
    # packing what was packed changes nothing, equal rows stay equal, zero stays zero
    np.testing.assert_array_equal(unpack(pack(back)), back)
    assert (back[x == 0] == 0).all()


def test_packing_keeps_small_heads_beside_large_ones() -> None:
    x = np.stack([np.full(8, 1e-6, np.float32), np.full(8, 1e6, np.float32)])
    np.testing.assert_allclose(unpack(pack(x)), x, rtol=2e-7)


def test_lock_refuses_a_second_writer_and_names_the_first(tmp_path: Path) -> None:
    with lock.writing(tmp_path):
        with pytest.raises(StoreError, match=f"process {os.getpid()}"), lock.writing(tmp_path):
            pass
        assert (tmp_path / lock.NAME).exists()
    assert list(tmp_path.iterdir()) == []
    with lock.writing(tmp_path):
        pass


def test_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from residual_audio.store.lock import writing\n"
        "with writing(pathlib.Path(sys.argv[1])):\n    print('held', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "held"
    with pytest.raises(StoreError, match=f"process {child.pid}"), lock.writing(tmp_path):
        pass
    child.kill()
    child.wait()
    child.stdout.close()
    assert (tmp_path / lock.NAME).exists()
    with lock.writing(tmp_path):
        pass


def test_manifest_notices_every_changed_byte(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"status": "complete", "note": "größe"})
    data = (tmp_path / NAME).read_bytes()
    assert is_intact(data)
    assert read_manifest(tmp_path)["note"] == "größe"
    for i in range(len(data)):
        changed = data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
        assert not is_intact(changed), f"a flipped bit in byte {i} was not noticed"
    (tmp_path / NAME).write_bytes(data.replace(b'"status": "complete"', b'"status":  "complete"'))
    with pytest.raises(StoreError, match="damaged"):
        read_manifest(tmp_path)


def test_manifest_of_another_schema_or_kind(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a store"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, {"schema_version": 99})
    with pytest.raises(StoreError, match="schema version 99"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, {"kind": "something else"})
    with pytest.raises(StoreError, match="not the manifest of a store"):
        read_manifest(tmp_path)


def test_changes_are_named() -> None:
    before = {"model": {"sha256": "a" * 64, "family": "x"}, "run": {"batch_size": 8}}
    now = {"model": {"sha256": "b" * 64, "family": "x"}, "run": {"batch_size": 4, "long": "first"}}
    assert changes(before, now) == [
        "model.sha256: aaaaaaaaaaaa… → bbbbbbbbbbbb…",
        "run.batch_size: 8 → 4",
        "run.long: null → first",
    ]
    assert fingerprint(before) != fingerprint(now)
    assert fingerprint(before) == fingerprint(json.loads(json.dumps(before)))


def test_clip_index_round_trip(tmp_path: Path) -> None:
    clips = [
        Clip("a/ü #1.wav", label="dog", captions=("one", "two"), fold=0, group="g"),
        Clip(" b.wav", captions=("three", "four")),
    ]
    write_clips(tmp_path / "clips.parquet", clips, [None, "is empty"])
    table = read_clips(tmp_path / "clips.parquet")
    assert len(table) == 2
    assert table["id"].tolist() == ["a/ü #1.wav", " b.wav"]
    assert table.label.tolist() == ["dog", None]
    assert table["fold"].tolist() == [0, None]
    assert table["captions"].tolist() == [("one", "two"), ("three", "four")]
    assert table["status"].tolist() == ["ok", "skipped"]
    assert table.where(table["status"] == "ok")["id"].tolist() == ["a/ü #1.wav"]
    with pytest.raises(StoreError, match="no column 'path'"):
        table["path"]
    with pytest.raises(AttributeError):
        _ = table.nothing
    (tmp_path / "clips.parquet").write_bytes(b"not parquet")
    with pytest.raises(StoreError, match=r"clips\.parquet"):
        read_clips(tmp_path / "clips.parquet")
