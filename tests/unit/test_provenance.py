"""Provenance says what made a file, and nothing about whose machine it was."""

from __future__ import annotations

import getpass
import json
import platform
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from residual_audio import __version__, provenance


def test_collect_is_json_and_names_what_was_used() -> None:
    model = SimpleNamespace(name="laion:/home/ann/clap.pt", family="laion", sha256="ab" * 32)
    dataset = SimpleNamespace(name="esc50", clips=(1, 2, 3), fingerprint=lambda: "f00d")
    record = provenance.collect(model, dataset, seed=7, prompts=("a {}", "{}"), tau=np.float32(0.5))
    again = json.loads(json.dumps(record, allow_nan=False))
    assert again["version"] == __version__
    assert again["packages"]["numpy"] == np.__version__
    assert again["model"] == {"name": "laion:…/clap.pt", "family": "laion", "sha256": "ab" * 32}
    assert again["dataset"] == {"name": "esc50", "fingerprint": "f00d", "n_clips": 3}
    assert again["seed"] == 7
    assert again["prompts"] == ["a {}", "{}"]
    assert again["tau"] == 0.5
    assert again["created_utc"].endswith("+00:00")


def test_nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "sys.argv",
        ["/opt/x/bin/residual-audio", "evaluate", "--root", str(tmp_path), f"--out={tmp_path}/r"],
    )
    text = json.dumps(provenance.collect(model=f"hf:{tmp_path}/m", files=[tmp_path / "a.wav"]))
    assert str(tmp_path) not in text
    assert str(tmp_path.parent) not in text
    assert str(Path.home()) not in text
    if platform.node():
        assert platform.node() not in text
    if len(getpass.getuser()) > 4:
        assert getpass.getuser() not in text
    assert "residual-audio" in text
    assert f"…/{tmp_path.name}" in json.loads(text)["command"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/home/ann/data/esc50", "…/esc50"),
        ("/home/ann/my data/esc 50/", "…/esc 50"),
        ("--root=/home/ann/esc50", "--root=…/esc50"),
        ("hf:/models/clap", "hf:…/clap"),
        ("hf:laion/clap-htsat-unfused", "hf:laion/clap-htsat-unfused"),
        ("~/sounds/dog.wav", "…/dog.wav"),
        ("~ann/dog.wav", "…/dog.wav"),
        (r"C:\Users\Ann\dog.wav", "…/dog.wav"),
        ("data/esc50", "data/esc50"),
        ("../shared/x.csv", "../shared/x.csv"),
        ("a dog / a cat", "a dog / a cat"),
        ("this is a {}", "this is a {}"),
        ("see '/home/ann/x.txt', then", "see '…/x.txt', then"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("/", "…"),
        ("", ""),
    ],
)
def test_absolute_paths_are_shortened(given: str, shown: str) -> None:
    assert provenance.without_machine_paths(given) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://ann:pw@example.org/a?token=abc&x=1", "https://example.org/a?…"),
        ("ray://key@10.0.0.1:6379", "ray://10.0.0.1:6379"),
        ("file:///home/ann/clap.pt", "file://…/clap.pt"),
        ("--key=hf_" + "aB3" * 10, "--key=hf_…"),
        ("hf:laion/clap-htsat-unfused", "hf:laion/clap-htsat-unfused"),
    ],
)
def test_no_secret_is_recorded(given: str, shown: str) -> None:
    assert provenance.without_machine_paths(given) == shown
    assert provenance.command_line(["/bin/residual-audio", given]) == ["residual-audio", shown]


def test_two_checkpoints_of_one_file_name_have_two_labels() -> None:
    one = SimpleNamespace(name="/runs/step-1/model", sha256="a" * 64)
    two = SimpleNamespace(name="/runs/step-2/model", sha256="b" * 64)
    assert provenance.model_label(one) == "…/model@aaaaaaaa"
    assert provenance.model_label(one) != provenance.model_label(two)
    assert provenance.model_label(SimpleNamespace(name="nano", sha256="c" * 64)) == "nano"


def test_plain_turns_everything_into_json() -> None:
    value = {
        "a": float("nan"),
        "b": np.arange(2),
        "c": {3, 1},
        "d": Path("/x/y"),
        "e": (1.5, None, True),
    }
    assert provenance.plain(value) == {
        "a": None,
        "b": [0, 1],
        "c": [1, 3],
        "d": "…/y",
        "e": [1.5, None, True],
    }


def test_sha256_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert provenance.sha256_file(tmp_path / "f") == expected


def test_a_tracked_package_names_its_commit_and_changes(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git")

    def run(*arguments: str) -> str:
        call = [git, "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()

    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    assert provenance.git_commit(package) is None
    run("init", "-q")
    assert provenance.git_commit.__wrapped__(package) is None  # below a tree, but not of it
    run("add", ".")
    run("commit", "-qm", "first")
    head = run("rev-parse", "HEAD")
    assert provenance.git_commit.__wrapped__(package) == head
    (package / "__init__.py").write_text("changed = True")
    assert provenance.git_commit.__wrapped__(package) == head + "+"


def test_no_git_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.git_commit.__wrapped__(tmp_path) is None


def test_run_time_is_recorded_where_it_is_given() -> None:
    assert provenance.collect(seconds=1.23456)["seconds"] == 1.235
    assert "seconds" not in provenance.collect()
