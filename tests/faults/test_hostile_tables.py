"""Archives, tables and notes that somebody else made: read, or refused by one sentence."""

from __future__ import annotations

import io
import json
import struct
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from containers import sound
from safetensors.numpy import save_file

from residual_audio.atlas.autoencoder_files import CONFIG, WEIGHTS, read_autoencoder
from residual_audio.data.metadata import read_jsonl
from residual_audio.data.registry import load_dataset
from residual_audio.data.webdataset import shard_files
from residual_audio.errors import DatasetError, InputError, ResidualAudioError
from residual_audio.files import parse_json
from residual_audio.generation.midi import read_folder
from residual_audio.generation.prompted_files import _stated
from residual_audio.generation.ratings import read_ratings
from residual_audio.geometry.cells import read_cells
from residual_audio.training.recipe import load_recipe

DEEP = "[" * 100_000


def tar(path: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as file:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def test_names_in_archives_that_are_not_utf8_have_rows(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", ("\udcff\udcfe.wav", sound(0)), ("b\x1b[2J.wav", sound(1)))
    found = load_dataset("wds", source=str(path))
    assert [clip.id for clip in found.clips] == ["a/\\xff\\xfe", "a/b\\x1b[2J"]


def test_an_archive_that_names_files_outside_is_named(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", ("../x.wav", sound(0)))
    with pytest.raises(DatasetError, match=r"'\.\./x\.wav' in a member of .*a\.tar"):
        load_dataset("wds", source=str(path))


@pytest.mark.parametrize("fold", [1e30, 1.5, "NaN", [1], 2**40])
def test_folds_that_are_no_whole_numbers(tmp_path: Path, fold: object) -> None:
    note = json.dumps({"fold": fold}).encode()
    path = tar(tmp_path / "a.tar", ("0.wav", sound(0)), ("0.json", note))
    with pytest.raises(DatasetError, match="is not a whole number"):
        load_dataset("wds", source=str(path), fold="fold")


def test_millions_of_shards_that_are_not_there_are_refused_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(DatasetError, match="there is no tar file"):
        shard_files("/nowhere/" + "{0..999999}" * 4 + ".tar")
    assert time.monotonic() - begun < 2


def parquet(path: Path, rows: list[dict[str, object]], about: bytes | None = None) -> str:
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.replace_schema_metadata({b"huggingface": about}) if about else table, path)
    return str(path)


def test_parquet_whose_sounds_are_texts_is_refused(tmp_path: Path) -> None:
    source = parquet(tmp_path / "a.parquet", [{"audio": {"bytes": "text", "path": "x"}}])
    with pytest.raises(DatasetError, match="does not hold the bytes of sounds"):
        load_dataset("hf", source=source)


def test_parquet_with_a_deep_header_and_labels_that_are_missing(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"audio": {"bytes": sound(i), "path": "x"}, "label": label}
        for i, label in enumerate((float("nan"), 2.5))
    ]
    source = parquet(tmp_path / "a.parquet", rows, DEEP.encode())
    found = load_dataset("hf", source=source, label="label")
    assert [clip.label for clip in found.clips] == [None, "2.5"]  # NaN is no class of its own


def test_a_parquet_page_that_fails_its_checksum_is_not_heard(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"audio": {"bytes": sound(0), "path": "x"}}]
    pq.write_table(
        pa.Table.from_pylist(rows), path, write_page_checksum=True, compression="none",
        use_dictionary=False, write_statistics=False,
    )  # fmt: skip
    data = bytearray(path.read_bytes())
    at = data.find(sound(0)[100:140])
    assert at > 0
    data[at + 5] ^= 4
    path.write_bytes(data)
    found = load_dataset("hf", source=str(path))
    assert found.fetch is not None
    with pytest.raises(ResidualAudioError, match=r"a\.parquet"):
        found.fetch(found.clips[0])


def test_deep_json_is_no_json_anywhere(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(DEEP)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(DEEP)
    recipe = tmp_path / "recipe.json"
    recipe.write_text(DEEP)
    for read in (read_jsonl, _stated):
        with pytest.raises(ResidualAudioError, match=r"rows\.jsonl"):
            read(rows)
    with pytest.raises(InputError, match=r"recipe\.json"):
        load_recipe(recipe)
    recipe.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"recipe\.json"):
        load_recipe(recipe)


def test_tables_with_cells_without_end(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text('listener,system,score\na,b,"' + "x" * 200_000 + '"\n')
    for read in (read_ratings, read_cells, _stated):
        with pytest.raises(InputError, match=r"ratings\.csv"):
            read(path)


def midi(ticks: int, *events: tuple[int, bytes]) -> bytes:
    """A file of one track; (time since the one before, event)."""
    track = b"".join(_length(after) + event for after, event in events) + b"\x00\xff\x2f\x00"
    head = b"MThd" + struct.pack(">IHHH", 6, 1, 1, ticks)
    return head + b"MTrk" + struct.pack(">I", len(track)) + track


def _length(n: int) -> bytes:
    found = [n & 127]
    while n := n >> 7:
        found.append(128 | n & 127)
    return bytes(reversed(found))


def test_pieces_without_beats_or_end_are_left_out_by_name(tmp_path: Path) -> None:
    pytest.importorskip("symusic")
    note = [(0, bytes([0x90, 60, 80])), (240, bytes([0x80, 60, 0]))]
    (tmp_path / "good.mid").write_bytes(midi(480, *note))
    (tmp_path / "no-ticks.mid").write_bytes(midi(0, *note))
    late = (2**28 - 1, bytes([0x90, 62, 80])), (240, bytes([0x80, 62, 0]))
    (tmp_path / "late.mid").write_bytes(midi(480, *note, *late))
    found = read_folder(tmp_path)
    assert found.files == ("good.mid",)
    assert "no ticks in a beat" in found.skipped["no-ticks.mid"]
    assert "559,242 beats" in found.skipped["late.mid"]  # its bars would fill terabytes


def test_ratings_with_a_column_twice(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("listener,listener,score\n1,2,3\n")
    with pytest.raises(InputError, match="'listener' twice"):
        read_ratings(path)


def test_ratings_of_more_than_any_test_are_refused_before_anything_is_allocated(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ratings.csv"
    rows = "".join(f"l{i},t{i},s{i % 100},5\n" for i in range(3000))
    for text in (rows, "".join(f"l,t,s{i},5\n" for i in range(200))):
        path.write_text("listener,trial,system,score\n" + text)
        with pytest.raises(InputError, match="no listening test"):
            read_ratings(path)


@pytest.mark.parametrize("wrong", [{"k": "x"}, {"k": None}, {"activation_fn_kwargs": 5}])
def test_autoencoders_whose_config_is_odd(tmp_path: Path, wrong: dict[str, object]) -> None:
    weights = {"W_enc": np.ones((4, 4)), "W_dec": np.ones((4, 4)), "b_enc": np.ones(4),
               "b_dec": np.ones(4)}  # fmt: skip
    save_file({k: v.astype(np.float32) for k, v in weights.items()}, tmp_path / WEIGHTS)
    (tmp_path / CONFIG).write_text(json.dumps({"activation_fn": "topk", **wrong}))
    with pytest.raises(InputError, match="k is"):
        read_autoencoder(tmp_path)
