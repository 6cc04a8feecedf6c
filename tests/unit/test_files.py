"""A file is all there or not there; JSON has one way in and one way out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from residual_audio import files
from residual_audio.errors import DatasetError, InputError


@dataclass(frozen=True)
class _Settings:
    rate: float
    where: Path


def test_everything_becomes_json() -> None:
    given = {
        "array": np.array([1.0, np.nan]),
        "number": np.float32(0.5),
        "settings": _Settings(np.inf, Path("a/b")),
        "set": {3, 1},
        "tuple": (True, None),
        4: "x",
    }
    found = files.json_ready(given)
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "array": [1.0, None],
        "number": 0.5,
        "settings": {"rate": None, "where": "a/b"},
        "set": [1, 3],
        "tuple": [True, None],
        "4": "x",
    }


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = files.write_json(tmp_path / "below" / "x.json", {"ü": [1, 2]})
    assert files.read_json(path) == {"ü": [1, 2]}
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # editors leave a byte order mark
    assert files.read_json_object(path) == {"ü": [1, 2]}


def test_an_error_names_the_file_and_is_of_the_callers_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        files.read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[1, ")
    with pytest.raises(DatasetError, match=r"x\.json' is not readable JSON"):
        files.read_json(tmp_path / "x.json", DatasetError)
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="holds a list, not an object"):
        files.read_json_object(tmp_path / "x.json")


def test_arrays_come_back_from_every_format(tmp_path: Path) -> None:
    from safetensors import safe_open

    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.array([3])}
    with np.load(files.write_npz(tmp_path / "x.npz", arrays)) as found:
        assert all(np.array_equal(found[name], arrays[name]) for name in arrays)
    path = files.write_safetensors(tmp_path / "x.safetensors", arrays, {"made": "here"})
    with safe_open(path, "numpy") as file:
        assert file.metadata() == {"made": "here"}
        assert all(np.array_equal(file.get_tensor(name), arrays[name]) for name in arrays)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = files.write_text(tmp_path / "x.txt", "before")
    with pytest.raises(AttributeError), files.replacing(path) as temporary:
        temporary.write_text("half").no_such_thing()  # type: ignore[attr-defined]
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_header_strings_are_in_one_order(tmp_path: Path) -> None:
    from safetensors import safe_open

    header = {f"key {i}": f"é {i}" for i in range(20)}
    arrays = {"b": np.arange(3.0), "a": np.eye(2)}
    made = {files.safetensors_bytes(arrays, dict(reversed(header.items()))) for _ in range(5)}
    assert made == {files.safetensors_bytes(arrays, header)}
    path = files.write_safetensors(tmp_path / "x.safetensors", arrays, header)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == header
        np.testing.assert_array_equal(file.get_tensor("b"), arrays["b"])
        np.testing.assert_array_equal(file.get_tensor("a"), arrays["a"])


def test_no_thread_stays_after_a_table_was_read(tmp_path: Path) -> None:
    """Pyarrow's threads and torch's together abort a process at its end, so reading starts none."""
    path = tmp_path / "t.parquet"
    files.write_parquet(path, pyarrow.table({"id": [str(i) for i in range(5000)], "n": [1] * 5000}))
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "import pyarrow.compute, pyarrow.parquet\n"
        "from residual_audio.files import read_parquet\n"
        "before = set(os.listdir('/proc/self/task'))\n"
        "assert read_parquet(Path(sys.argv[1])).num_rows == 5000\n"
        "new = set(os.listdir('/proc/self/task')) - before\n"
        "print([Path('/proc/self/task', t, 'comm').read_text().strip() for t in new])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() in ("[]", "['jemalloc_bg_thd']"), ran.stdout  # the allocator's own


def test_nothing_reads_parquet_by_another_way() -> None:
    root = Path(files.__file__).parent
    assert not [
        p for p in root.rglob("*.py") if re.search(r"(pq|parquet)\.read_table\(", p.read_text())
    ]
