"""A run in parts: any order, repeated at will, the same bytes as in one go."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock
from tiny_model import tiny_model
from typer.testing import CliRunner

from residual_audio.cli.app import build
from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError, StoreError
from residual_audio.extraction.batch_parts import RunPart, extract_part, finish_parts, plan_parts
from residual_audio.extraction.extraction import extract
from residual_audio.models import native
from residual_audio.store.lock import writing, writing_part
from residual_audio.store.verify import verify_store

HOW = {"device": "cpu", "shard_size": 3}


@pytest.fixture(scope="module")
def model():
    return tiny_model(text=False)


@pytest.fixture(scope="module")
def sounds():
    return load_dataset("synthetic", n_clips=20, duration_s=1.0)


def files(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (out / "store").iterdir() if p.name != "manifest.json"}


def test_parts_in_any_order_and_twice_give_the_bytes_of_one_run(tmp_path, model, sounds) -> None:
    out = tmp_path / "parts"
    with pytest.raises(StoreError, match="has no plan yet"):
        extract_part(model, sounds, out, RunPart(1, 3), **HOW)
    assert plan_parts(model, sounds, out, **HOW).n_shards == 7
    assert extract_part(model, sounds, out, RunPart(3, 3), **HOW).n_made == 2
    with pytest.raises(StoreError, match=r"5 of 7 shards are not there.*: 0, 1, 3, 4, 6\)"):
        finish_parts(model, sounds, out, **HOW)
    assert plan_parts(model, sounds, out, **HOW).n_clips == 20  # a plan that is there stays
    assert extract_part(model, sounds, out, RunPart(1, 3), **HOW).n_made == 3
    assert extract_part(model, sounds, out, RunPart(1, 3), **HOW).n_made == 0
    assert extract_part(model, sounds, out, RunPart(2, 2), **HOW).n_made == 1  # of another division
    assert extract_part(model, sounds, out, RunPart(2, 3), **HOW).n_made == 1
    assert finish_parts(model, sounds, out, **HOW).n_ok == 20
    assert verify_store(out) == []
    extract(model, sounds, tmp_path / "whole", **HOW)
    assert files(out) == files(tmp_path / "whole")
    with pytest.raises(StoreError, match=r"run\.batch_size"):
        extract_part(model, sounds, out, RunPart(1, 3), **HOW, batch_size=2)


def test_parts_exclude_the_whole_and_themselves_but_not_each_other(tmp_path) -> None:
    with writing_part(tmp_path, "1-of-2"), writing_part(tmp_path, "2-of-2"):
        with pytest.raises(StoreError, match="part 1-of-2"), writing_part(tmp_path, "1-of-2"):
            pass
        with pytest.raises(StoreError, match=f"process {os.getpid()}"), writing(tmp_path):
            pass
    with (
        writing(tmp_path),
        pytest.raises(StoreError, match="another process"),
        writing_part(tmp_path, "1-of-2"),
    ):
        pass
    (tmp_path / ".lock-part-1-of-2").touch()  # of a process that was killed
    with writing(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch) -> None:
    def refuse(self, *args, **options) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with (
        writing(tmp_path),
        pytest.raises(StoreError, match=r"its file system has no locks.*remove that file"),
        writing(tmp_path),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2"])
def test_what_is_no_part_is_refused(text) -> None:
    with pytest.raises(InputError, match="is no part"):
        RunPart.parse(text)


def test_by_command(tmp_path, model) -> None:
    native.save(model, tmp_path / "tiny")
    out = tmp_path / "run"
    base = [
        "extract", "-m", str(tmp_path / "tiny"), "-d", "synthetic:n_clips=6,duration_s=1",
        "--out", str(out), "--shard-size", "3", "--device", "cpu", "--quiet",
    ]  # fmt: skip
    runner = CliRunner()
    assert "in 2 shards are planned" in runner.invoke(build(), [*base, "--plan"]).output
    for part in ("2/2", "1/2"):
        found = runner.invoke(build(), [*base, "--part", part, "--json"])
        assert json.loads(found.output)["n_made"] == 1
    assert "6 clips of synthetic" in runner.invoke(build(), [*base, "--finish"]).output
    both = runner.invoke(build(), [*base, "--finish", "--plan"])
    assert isinstance(both.exception, InputError)


def test_the_slurm_script_submits_the_three_steps_in_order(tmp_path) -> None:
    fake = tmp_path / "sbatch"
    fake.write_text('#!/bin/bash\necho "$@" >> "$LOG"\necho 7\n')
    fake.chmod(0o755)
    log = tmp_path / "log"
    script = Path(__file__).parents[2] / "examples" / "slurm-extract.sh"
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "OUT": "/o"}
    subprocess.run(["bash", str(script), "4"], env=env, check=True, timeout=30)
    plan, parts, finish = log.read_text().splitlines()
    assert plan.endswith("--out /o --quiet --plan")
    assert "afterok:7 --array 1-4" in parts
    assert "--part $SLURM_ARRAY_TASK_ID/4 || test $? = 3" in parts
    assert "--finish" in finish
