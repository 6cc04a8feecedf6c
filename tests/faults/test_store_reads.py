"""Of a store, only what was written is ever read: flipped bits, cuts, swaps and foreign names."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.errors import StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.store import open_store
from residual_audio.store.manifest import read_manifest, write_manifest
from residual_audio.store.reader import Store
from residual_audio.store.verify import verify_store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made")
    dataset = load_dataset("synthetic", n_clips=9, duration_s=1.0)
    extract(tiny_model(), dataset, out, capture="all", shard_size=4, device="cpu")
    return out / "store"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def read_everything(store: Store) -> None:
    for name in store.names:
        for _ in store.pieces(name):
            pass
    for name in store.operator_names:
        store.operator(name)
    assert len(store.clips) > 0
    assert store.text_record


def damage(folder: Path) -> str:
    """What reading says is wrong; nothing where it goes through."""
    try:
        read_everything(open_store(folder))
    except StoreError as error:
        return str(error)
    return ""


def test_a_whole_store_reads_whole(folder: Path) -> None:
    read_everything(open_store(folder))
    assert verify_store(folder) == []


def test_every_flipped_bit_is_found_by_reading(folder: Path) -> None:
    rng = np.random.default_rng(0)
    silent = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for _ in range(15):
            at, bit = int(rng.integers(len(data))), int(rng.integers(8))
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            if path.name not in damage(folder):
                silent.append((path.name, at, bit))
        path.write_bytes(data)
    assert silent == []


def test_every_cut_is_found_on_opening(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for size in (0, 7, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:size])
            with pytest.raises(StoreError, match=path.name):
                open_store(folder)
        path.write_bytes(data)


def test_swapped_shards_are_named(folder: Path) -> None:
    first, second = (folder / f"shard-0000{i}.safetensors" for i in (0, 1))
    assert first.stat().st_size == second.stat().st_size
    first.rename(folder / "kept")
    second.rename(first)
    (folder / "kept").rename(second)
    store = open_store(folder)
    with pytest.raises(StoreError, match=r"shard-00000.* says it is number 1"):
        store.embedding()


def test_a_shard_that_shrinks_after_opening_is_an_error(folder: Path) -> None:
    store = open_store(folder)
    pieces = store.pieces("embedding/joint")
    next(pieces)
    os.truncate(folder / "shard-00001.safetensors", 5000)
    with pytest.raises(StoreError, match="shard-00001"):
        next(pieces)


@pytest.mark.parametrize("name", ["../shard-00000.safetensors", "/etc/hostname", "clips.parquet"])
def test_a_signed_manifest_may_not_name_other_files(folder: Path, name: str) -> None:
    (folder.parent / "shard-00000.safetensors").write_bytes(
        (folder / "shard-00000.safetensors").read_bytes()
    )
    record = read_manifest(folder)
    record["shards"][0]["name"] = name
    write_manifest(folder, record)
    with pytest.raises(StoreError, match="where it should not be"):
        open_store(folder)
    assert verify_store(folder)


@pytest.mark.parametrize("key", ["shards", "files", "sites", "arrays", "fingerprint"])
def test_a_signed_manifest_without_a_part_is_an_error(folder: Path, key: str) -> None:
    record = read_manifest(folder)
    del record[key]
    write_manifest(folder, record)
    with pytest.raises(StoreError, match=key):
        open_store(folder)


def test_files_of_another_store(made: Path, tmp_path: Path) -> None:
    """The same model, the same number of clips, other sounds: each of its files is found out."""
    dataset = load_dataset("synthetic", n_clips=9, duration_s=1.0, seed=7)
    extract(tiny_model(), dataset, tmp_path / "b", capture="all", shard_size=4, device="cpu")
    changed = 0
    for theirs in sorted((tmp_path / "b" / "store").iterdir()):
        if not theirs.is_file() or theirs.read_bytes() == (made / theirs.name).read_bytes():
            continue
        folder = Path(shutil.copytree(made, tmp_path / theirs.stem))
        shutil.copy(theirs, folder)
        assert damage(folder), theirs.name
        changed += 1
    assert changed > 4  # three shards, the index, the manifest


def test_extract_again_makes_damaged_shards_anew(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    data = bytearray(before["shard-00001.safetensors"])
    data[-3] ^= 4
    (folder / "shard-00001.safetensors").write_bytes(data)
    dataset = load_dataset("synthetic", n_clips=9, duration_s=1.0)
    again = extract(tiny_model(), dataset, folder.parent, capture="all", shard_size=4, device="cpu")
    assert again.n_shards_made == 1
    assert {path.name: path.read_bytes() for path in folder.glob("*.safetensors")} == before


def test_a_store_of_the_first_schema_is_read_and_proved(folder: Path) -> None:
    record = read_manifest(folder)
    record["schema_version"] = 1
    for shard in record["shards"]:
        del shard["seal"]
    write_manifest(folder, record)
    read_everything(open_store(folder))
    path = folder / "shard-00002.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="shard-00002"):
        read_everything(open_store(folder))
    dataset = load_dataset("synthetic", n_clips=9, duration_s=1.0)
    with pytest.raises(StoreError, match="earlier version"):
        extract(tiny_model(), dataset, folder.parent, capture="all", shard_size=4, device="cpu")


def test_json_with_nan_or_nested_without_end_is_refused(folder: Path) -> None:
    for text in ("[" * 200_000, json.dumps({"kind": 1}), "NaN", "{}"):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(StoreError, match=r"manifest\.json"):
            open_store(folder)
