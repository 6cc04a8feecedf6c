"""Extraction by several processes, under kills and Ctrl-C, and by its commands."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from extracting import run
from tiny_model import SPEC
from typer.testing import CliRunner

from residual_audio.audio.frontend import LogMel
from residual_audio.capture.recorder import Recorder
from residual_audio.cli.app import build
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import InputError, StoreError
from residual_audio.models.joint import Linear
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.store import lock
from residual_audio.store.verify import verify_store
from residual_audio.surface.model import Model


def test_processes_write_the_same_store(tmp_path, model_folder, dataset) -> None:
    # as many threads in each as here, or sums may be taken in another order
    here = run(str(model_folder), dataset, tmp_path / "here")
    there = run(str(model_folder), dataset, tmp_path / "there", processes=2)
    assert there.n_shards_made == 4
    assert verify_store(tmp_path / "there") == []
    for name in here.store.names:
        mine, other = here.store.array(name), there.store.array(name)
        np.testing.assert_allclose(other, mine, atol=2e-6 * np.abs(mine).max())


def test_ray_writes_the_same_store(tmp_path, model_folder, dataset, monkeypatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed (extra 'cluster')")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    here = run(str(model_folder), dataset, tmp_path / "here", shard_size=11)
    there = run(
        str(model_folder), dataset, tmp_path / "there", shard_size=11, engine="ray", processes=2
    )
    assert there.n_shards_made == 2
    assert not ray.is_initialized()
    assert verify_store(tmp_path / "there") == []
    for name in here.store.names:
        mine, other = here.store.array(name), there.store.array(name)
        np.testing.assert_allclose(other, mine, atol=2e-6 * np.abs(mine).max())


def test_second_process_is_refused(tmp_path, model, dataset) -> None:
    (tmp_path / "store").mkdir()
    with lock.writing(tmp_path / "store"), pytest.raises(StoreError, match="another process"):
        run(model, dataset, tmp_path)
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the test forks")
def test_killed_runs_resume_to_identical_shards() -> None:
    """A few kills here; `residual-audio bench kill` does thirty."""
    done = subprocess.run(
        [sys.executable, "-m", "residual_audio", "bench", "kill", "--kills", "3", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 3
    assert found["identical"]


@pytest.fixture
def sounds(tmp_path) -> Path:
    """A folder with two classes, one file of which is broken."""
    root = tmp_path / "sounds"
    draw = np.random.default_rng(0)
    for label in ("hum", "hiss"):
        (root / label).mkdir(parents=True)
        for i in range(3):
            noise = draw.normal(0, 0.1, 8000).astype(np.float32)
            soundfile.write(root / label / f"{label} #{i}.wav", noise, 8000)
    (root / "hiss" / "broken.wav").write_bytes(b"RIFF")
    return root


def test_extract_and_store_commands(tmp_path, model_folder, sounds) -> None:
    out = tmp_path / "run"
    cli, app = CliRunner(), build()
    asked = ["--model", str(model_folder), "--dataset", "folder", "--root", str(sounds)]
    asked += ["--out", str(out), "--device", "cpu", "--capture", "heads,direct", "--json"]
    done = cli.invoke(app, ["extract", *asked])
    assert done.exit_code == 3, done.output
    summary = json.loads(done.stdout)
    assert (summary["n_ok"], summary["n_skipped"]) == (6, 1)
    assert sum(summary["skipped"].values()) == 1
    assert str(tmp_path) not in json.dumps(summary["skipped"])
    again = cli.invoke(app, ["extract", *asked[:-1]])
    assert again.exit_code == 3
    assert "everything was there already" in again.output

    done = cli.invoke(app, ["store", "info", str(out), "--json"])
    assert done.exit_code == 0
    info = json.loads(done.stdout)
    assert info["n_ok"] == 6
    assert info["capture"]["kinds"] == ["embedding", "heads", "direct"]
    assert list(info["skipped"]) == ["hiss/broken.wav"]
    assert str(tmp_path) not in json.dumps({**info, "folder": ""})
    assert cli.invoke(app, ["store", "info", str(out)]).exit_code == 0

    assert cli.invoke(app, ["store", "verify", str(out)]).exit_code == 0
    shard = out / "store" / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    done = cli.invoke(app, ["store", "verify", str(out), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["problems"][0].startswith(shard.name)
    assert cli.invoke(app, ["extract", *asked, "--overwrite"]).exit_code == 3
    assert cli.invoke(app, ["store", "verify", str(out)]).exit_code == 0

    done = cli.invoke(app, ["store", "export", str(out), "--to", str(tmp_path / "x.npz")])
    assert done.exit_code == 0
    assert (tmp_path / "x.npz").is_file()


def test_too_little_memory_names_the_batch_size(tmp_path, model, dataset, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(Recorder, "run", full)
    with pytest.raises(InputError, match="use a --batch-size below 4"):
        run(model, dataset, tmp_path, batch_size=4)


def test_ctrl_c_stops_cleanly_and_keeps_what_is_finished(tmp_path, model_folder) -> None:
    out = tmp_path / "run"
    program = "from residual_audio.cli import main; main()"
    command = [sys.executable, "-c", program, "extract", "--model", str(model_folder)]
    command += ["--dataset", "synthetic", "--data-option", "n_clips=3000", "--shard-size", "8"]
    command += ["--data-option", "duration_s=1", "--out", str(out), "--device", "cpu"]
    child = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background jobs, and what they start, ignore SIGINT
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not list(out.glob("store/shard-00001*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert time.monotonic() - start < 10
    assert child.returncode == 130
    assert "the same command continues" in errors
    assert "Traceback" not in errors
    names = {path.name for path in (out / "store").iterdir()}
    assert {"manifest.json", "shard-00000.safetensors", "shard-00001.safetensors"} <= names
    assert not any(name.startswith(".") for name in names)
    shutil.rmtree(out)


def test_encoder_that_reads_clips_of_any_length(tmp_path, dataset) -> None:
    """One stage, special tokens, rows stacked, clips of 0.3 to 2 s: every kind still works."""
    config = ViTConfig(
        width=16,
        depth=2,
        n_heads=4,
        hidden=32,
        n_mels=16,
        n_frames=48,
        norm_eps=1e-6,
        patch=(4, 4),
        stride=(4, 4),
        n_special=1,
        pool="stack",
        chunks=True,
    )
    torch.manual_seed(0)
    encoder = ViT(config)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0, 0.3)
    vit = Model(
        name="vit",
        family="test",
        front_end=LogMel(dataclasses.replace(SPEC, short="keep")),
        encoder=encoder,
        head=Linear(config.latent, 5),
        text=None,
        logit_scale=1.0,
        sha256="0",
    )

    def make(clip, rate):
        i = int(clip.id[:7])
        wave = dataset.make(clip, rate)
        return wave[: len(wave) // (1 + i % 3)] if i % 4 else np.concatenate([wave, wave])

    mixed = dataclasses.replace(dataset, make=make)
    store = run(vit, mixed, tmp_path, capture="all", batch_size=3).store
    latent = store.latent()
    error = np.abs(Contributions(store).total() - latent).max() / np.abs(latent).max()
    assert error < 1e-5
    waves = [mixed.read(clip, 8000) for clip in mixed.clips]
    np.testing.assert_allclose(
        store.embedding(), vit.embed_audio(waves, sample_rate=vit.sample_rate_hz), atol=1e-5
    )
    site = store.attention_sites[0]
    # maps of the first clip's size only, and rows that are of that length
    maps, at = (store.array(f"attention/{site}/{name}") for name in ("maps", "maps_at"))
    assert len(maps) == len(at) > 0
    lengths = [len(wave) for wave in waves]
    assert {lengths[row] for row in at[:, 0]} == {lengths[0]}
    assert store.array(f"tokens/{site}/sample").shape[2] == 64
