"""Nothing listens and nothing is sent, and without a network the answer comes soon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from residual_audio.cli.app import build


def test_ordinary_work_opens_no_connection_and_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "a.wav", np.random.default_rng(0).normal(size=8000) / 10, 8000)
    used: list[object] = []

    def note(self: socket.socket, *address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            used.append(address)
            raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "bind", "listen"):
        monkeypatch.setattr(socket.socket, name, note)
    monkeypatch.setenv("RESIDUAL_AUDIO_CACHE", str(tmp_path / "cache"))
    made = ["-d", "synthetic", "--data-option", "n_clips=4"]
    for command in (
        ["classify", str(tmp_path / "a.wav"), "--labels", "a dog,rain"],
        ["embed", str(tmp_path / "a.wav"), "--out", str(tmp_path / "a.npz")],
        ["extract", *made, "--out", str(tmp_path / "run"), "--quiet"],
        ["models"],
        ["doctor"],
    ):
        found = CliRunner().invoke(build(), command)
        assert found.exit_code == 0, (command, found.output)
    assert used == []


def test_offline_says_so_within_seconds(tmp_path: Path) -> None:
    code = (
        "import residual_audio as ra, time; ra.load_model('nano'); begun = time.monotonic()\n"
        "try:\n    ra.load_model('hf:laion/clap-htsat-unfused')\n"
        "except Exception as error:\n    print(time.monotonic() - begun, error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    seconds, said = done.stdout.split(" ", 1)
    assert float(seconds) < 5
    assert time.monotonic() - begun < 110
    assert "cannot be reached" in said
    assert "laion/clap-htsat-unfused" in said
