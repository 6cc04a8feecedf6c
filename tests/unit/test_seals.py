"""What is written with a seal is proved when it is read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from residual_audio.errors import InputError, StoreError
from residual_audio.files import read_json, read_json_object, write_json
from residual_audio.report import write
from residual_audio.report.write import write_tables
from residual_audio.results import read_result, read_results, write_result
from residual_audio.seals import (
    SUMS,
    is_sealed,
    prove_document,
    prove_file,
    read_sealed_arrays,
    seal_files,
    sealed,
    write_sealed_arrays,
)
from residual_audio.table import Table
from residual_audio.types import Result, Score


def test_files_on_the_list_are_proved(tmp_path: Path) -> None:
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    a.write_text("x\n1\n")
    b.write_text("x\n2\n")
    assert prove_file(a) == a  # no list, no seal
    seal_files([a])
    seal_files([b])  # the first stays on it
    assert [line.split("  ")[1] for line in (tmp_path / SUMS).read_text().splitlines()] == [
        "a.csv",
        "b.csv",
    ]
    a.write_text("x\n7\n")
    with pytest.raises(InputError, match=r"a\.csv' is not what was written.*remove its line"):
        prove_file(a)
    assert prove_file(b) == b
    b.unlink()
    seal_files([a])  # written anew, and what is gone is not listed
    assert prove_file(a) == a
    assert "b.csv" not in (tmp_path / SUMS).read_text()


def test_a_list_that_is_none_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x")
    (tmp_path / SUMS).write_text("no digests\n")
    with pytest.raises(StoreError, match="SHA256SUMS' is damaged"):
        prove_file(path, StoreError)
    seal_files([path])
    assert prove_file(path) == path


def test_documents_carry_their_own(tmp_path: Path) -> None:
    path = write_json(tmp_path / "x.json", sealed({"value": 0.1, "n": np.nan, "of": (1, 2)}))
    held = read_json(path)
    prove_document(held, path)
    prove_document({"value": 3}, path)  # of somebody else
    held["value"] = 0.2
    with pytest.raises(InputError, match=r"x\.json' is not what was written"):
        prove_document(held, path)


def test_results_that_were_changed_are_refused(tmp_path: Path) -> None:
    scores = (Score("top1", 0.5, 0.4, 0.6, 100, 0.02),)
    path = write_result(Result("zero-shot", "small", "synthetic", "all", scores), tmp_path)
    assert read_result(path)["top1"].value == 0.5
    path.write_text(path.read_text().replace("0.5", "0.9"))
    for read in (lambda: read_result(path), lambda: read_results([tmp_path])):
        with pytest.raises(InputError, match="not what was written"):
            read()


def test_arrays_carry_a_digest(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "step": np.array(4)}
    path = write_sealed_arrays(tmp_path / "x.safetensors", arrays)
    found = read_sealed_arrays(path)
    assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"x\.safetensors' is damaged"):
        read_sealed_arrays(path, StoreError)


def test_who_is_killed_between_writing_and_sealing_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    first, second, third = (Table(name, {"x": np.ones(2)}, name) for name in "abc")
    write_tables(tmp_path, [first])
    with monkeypatch.context() as patch:
        patch.setattr(write, "seal_files", killed)
        with pytest.raises(KeyboardInterrupt):
            write_tables(tmp_path, [second])
    write_tables(tmp_path, [third])
    path = tmp_path / "tables" / "interventions.json"
    assert list(read_json_object(path)) == ["a", "b", "c"]
    assert is_sealed(path)
    path.write_text(path.read_text().replace('"a"', '"z"', 1))
    with pytest.raises(InputError, match="is not what was written"):
        write_tables(tmp_path, [first])
