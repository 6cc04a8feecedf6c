"""Models of strangers: nothing runs, nothing outside the folder is read, sizes are bounded."""

from __future__ import annotations

import json
import pickle
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loading import answers_of
from tiny_model import tiny_model

from residual_audio.errors import ModelError
from residual_audio.models import native
from residual_audio.models.checkpoint_files import SUMS, WEIGHTS
from residual_audio.models.registry import load_model
from residual_audio.models.weights import read_pickle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("model") / "tiny"
    native.save(tiny_model(text=False), out)
    return out


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "model"))


def test_every_flipped_bit_of_a_model_folder_is_found(folder: Path) -> None:
    native.load(folder)
    rng = np.random.default_rng(0)
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for _ in range(25):
            at = int(rng.integers(len(data)))
            flipped = bytes([data[at] ^ 1 << int(rng.integers(8))])
            path.write_bytes(data[:at] + flipped + data[at + 1 :])
            with pytest.raises(ModelError, match=f"{path.name}|{SUMS}"):
                native.load(folder)
        path.write_bytes(data)


def test_the_bundled_model_is_proved(tmp_path: Path) -> None:
    from residual_audio.models.registry import NANO

    assert (NANO / SUMS).is_file()
    nano = Path(shutil.copytree(NANO, tmp_path / "nano"))
    data = bytearray((nano / WEIGHTS).read_bytes())
    data[-100] ^= 1
    (nano / WEIGHTS).write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        native.load(nano)


HUGE = [
    ("encoder", "embed_dim", 2**40),
    ("encoder", "embed_dim", 2**20),
    ("encoder", "depths", [10**9, 1, 1, 1]),
    ("encoder", "depths", [1] * 10**6),
    ("encoder", "window", 10**6),
    ("encoder", "spec_size", 10**9),
    ("encoder", "n_heads", [10**12] * 4),
    ("encoder", "patch", 0),
    ("encoder", "embed_dim", -8),
    ("encoder", "embed_dim", "eight"),
    ("encoder", "embed_dim", None),
    ("head", "d_out", 10**15),
    ("head", "d_in", 10**9),
    ("front_end", "n_samples", 10**15),
    ("front_end", "n_fft", 2**40),
    ("front_end", "n_mels", 10**12),
    ("front_end", "hop_length", 0),
    ("front_end", "sample_rate_hz", 10**18),
    ("front_end", "unknown", 1),
]


def test_configs_that_ask_for_too_much_are_refused_at_once(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    folders = []
    for i, (part, key, value) in enumerate(HUGE):
        changed: dict[str, Any] = json.loads(json.dumps(config))
        inner = changed[part] if part == "front_end" else changed[part]["config"]
        inner[key] = value
        copy = Path(shutil.copytree(folder, tmp_path / str(i)))
        (copy / SUMS).unlink()
        (copy / "config.json").write_text(json.dumps(changed))
        folders.append(str(copy))
    answers = answers_of(folders)
    wrong = [case for case, a in zip(HUGE, answers, strict=True) if not a.startswith("refused")]
    assert wrong == []


@pytest.mark.parametrize("text", ["[]", "null", "[" * 100_000, "{", '{"format": "residual-audio"}'])
def test_configs_that_are_no_configs(folder: Path, text: str) -> None:
    (folder / SUMS).unlink()
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json|model|schema"):
        load_model(str(folder), "cpu")


class Runs:
    def __init__(self, call: Any, *arguments: Any) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> Any:
        return self.call, self.arguments


def test_pickles_do_not_run(tmp_path: Path) -> None:
    import os
    import runpy
    import shutil as files

    mark = tmp_path / "ran"
    script = tmp_path / "x.py"
    script.write_text(f"open({str(mark)!r}, 'w')")
    calls = [
        Runs(os.system, f"touch {mark}"),
        Runs(subprocess.Popen, ["touch", str(mark)]),
        Runs(eval, f"open({str(mark)!r}, 'w')"),
        Runs(exec, f"open({str(mark)!r}, 'w')"),
        Runs(open, str(mark), "w"),
        Runs(runpy.run_path, str(script)),
        Runs(files.copy, str(script), str(mark)),
        Runs(Path.touch, mark),
        Runs(torch.hub.load, "x/y", "z"),
        Runs(__import__, "antigravity"),
    ]
    for call in calls:
        for inner in (call, {"state_dict": call}, [call]):
            for save in (_plain, torch.save):
                save(inner, tmp_path / "x.pt")
                with pytest.raises(ModelError, match="nothing in it was executed"):
                    read_pickle(tmp_path / "x.pt")
    assert not mark.exists()


def _plain(value: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(value))


def test_a_damaged_torch_archive_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.randn(1000)}, path)
    read_pickle(path)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    at = data.index(read_pickle(path)["a"].numpy().tobytes())
    for _ in range(20):
        i = at + int(rng.integers(4000))
        path.write_bytes(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])
        with pytest.raises(ModelError, match=r"x\.pt"):
            read_pickle(path)


def test_a_hub_that_accepts_and_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        accepted: list[socket.socket] = []
        threading.Thread(
            target=lambda: [accepted.append(server.accept()[0]) for _ in range(50)], daemon=True
        ).start()
        asking = [
            subprocess.Popen(
                [sys.executable, "-c", _HUB],
                env={**_clean_environment(tmp_path / str(i)), **settings},
                stdout=subprocess.PIPE,
                text=True,
            )
            for i, settings in enumerate(
                (
                    {"HF_ENDPOINT": f"http://127.0.0.1:{port}"},
                    {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": f"http://127.0.0.1:{port}"},
                )
            )
        ]
        for one in asking:
            word, seconds = one.communicate(timeout=120)[0].split()
            assert word == "refused"
            assert float(seconds) < 15


_HUB = """
import time
from residual_audio.errors import ModelError
from residual_audio.models.registry import load_model
begun = time.monotonic()
try:
    load_model("hf:laion/clap-htsat-unfused")
except ModelError as error:
    assert "cannot be reached" in str(error), error
    print("refused", time.monotonic() - begun)
"""


def _clean_environment(home: Path) -> dict[str, str]:
    import os

    proxies = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    kept = {k: v for k, v in os.environ.items() if k.lower() not in proxies}
    kept.pop("HF_HUB_OFFLINE", None)
    return {**kept, "HF_HOME": str(home)}
