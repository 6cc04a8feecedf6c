"""Extraction as a whole: resume, refusal, skipping, engines, the commands."""

from __future__ import annotations

import dataclasses
import hashlib
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
from tiny_model import SPEC, tiny_model
from typer.testing import CliRunner

import residual_audio as ra
from residual_audio.audio.frontend import LogMel
from residual_audio.capture.recorder import Recorder
from residual_audio.cli.app import build
from residual_audio.data.registry import load_dataset
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import AudioError, DatasetError, InputError, ModelError, StoreError
from residual_audio.models import native
from residual_audio.models.joint import Linear
from residual_audio.models.registry import NANO
from residual_audio.models.vit import ViT, ViTConfig
from residual_audio.passes.sources import reason
from residual_audio.store import lock
from residual_audio.store.verify import verify_store
from residual_audio.surface.model import Model
from residual_audio.types import Clip

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", n_clips=22, duration_s=1.0)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    native.save(tiny_model(text=False), folder)
    return folder


def run(model, dataset, out, **options):
    return ra.extract(model, dataset, out, **{"device": "cpu", "shard_size": 6, **options})


def digests(out: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (out / "store").iterdir()
        if path.name != "manifest.json"  # it holds the time
    }


class Stopped(Exception):
    pass


def stop_after(n_clips: int):
    def progress(done: int, total: int) -> None:
        if done >= n_clips:
            raise Stopped

    return progress


def test_resumed_is_the_same_as_uninterrupted(tmp_path, model, dataset) -> None:
    whole = run(model, dataset, tmp_path / "whole", capture="all")
    assert whole.n_shards_made == 4
    with pytest.raises(Stopped):
        run(model, dataset, tmp_path / "stopped", capture="all", progress=stop_after(15))
    folder = tmp_path / "stopped" / "store"
    assert not (folder / lock.NAME).exists()
    assert sorted(p.name for p in folder.glob("shard-*")) == [
        "shard-00000.safetensors",
        "shard-00001.safetensors",
    ]
    with pytest.raises(StoreError, match="not finished"):
        ra.open_store(folder)
    assert any("not finished" in line for line in verify_store(folder))
    first = (folder / "shard-00000.safetensors").stat().st_mtime_ns
    resumed = run(model, dataset, tmp_path / "stopped", capture="all")
    assert resumed.n_shards_made == 2
    assert (folder / "shard-00000.safetensors").stat().st_mtime_ns == first
    assert digests(tmp_path / "stopped") == digests(tmp_path / "whole")
    assert verify_store(tmp_path / "stopped") == []
    assert run(model, dataset, tmp_path / "whole", capture="all").n_shards_made == 0


def test_damaged_or_lost_shards_are_made_again(tmp_path, model, dataset) -> None:
    run(model, dataset, tmp_path)
    before = digests(tmp_path)
    folder = tmp_path / "store"
    (folder / "shard-00002.safetensors").unlink()
    data = bytearray((folder / "shard-00001.safetensors").read_bytes())
    data[-3] ^= 4
    (folder / "shard-00001.safetensors").write_bytes(data)
    assert run(model, dataset, tmp_path).n_shards_made == 2
    assert digests(tmp_path) == before


def test_batch_size_and_threads_do_not_change_results(tmp_path, model, dataset) -> None:
    names = None
    found = {}
    for batch_size, threads in ((1, 0), (4, 2), (6, 1)):
        store = run(
            model,
            dataset,
            tmp_path / str(batch_size),
            capture="heads,direct,stages",
            batch_size=batch_size,
            n_threads=threads,
        ).store
        names = store.names
        found[batch_size] = {name: store.array(name) for name in names}
    assert names is not None
    for name in names:
        scale = np.abs(found[1][name]).max()
        for batch_size in (4, 6):
            difference = np.abs(found[batch_size][name] - found[1][name]).max()
            assert difference <= 2e-6 * scale, (name, batch_size)


def test_embeddings_are_those_of_the_model(tmp_path, model, dataset) -> None:
    store = run(model, dataset, tmp_path).store
    waves = [dataset.read(clip, model.sample_rate_hz) for clip in dataset.clips]
    np.testing.assert_allclose(store.embedding(), model.embed_audio(waves), atol=1e-6)


def test_float64_contributions_sum_to_the_latent(tmp_path, dataset) -> None:
    double = tiny_model(text=False).double()
    store = run(double, dataset, tmp_path, capture="direct,heads,blocks", limit=4).store
    latent = store.latent()
    assert latent.dtype == np.float64
    error = np.abs(Contributions(store).total() - latent).max() / np.abs(latent).max()
    assert error < 1e-10
    for site in store.attention_sites:
        total = sum(store.projected(head, bias=True) for head in site.heads)
        out = store.array(f"blocks/s{site.stage}.b{site.block}/attention")
        np.testing.assert_allclose(total, out, atol=1e-10 * np.abs(out).max())


def test_bundled_model_decomposes_exactly(tmp_path, dataset) -> None:
    if not (NANO / "config.json").is_file():
        pytest.skip("the bundled model 'nano' is not in this build")
    store = run("nano", dataset, tmp_path, capture="heads,blocks,stages,direct", limit=6).store
    latent = store.latent()
    total = Contributions(store).total()
    error = np.linalg.norm(total - latent, axis=1) / np.linalg.norm(latent, axis=1)
    assert error.max() < 1e-5
    for site in store.attention_sites:
        summed = sum(store.projected(head, bias=True) for head in site.heads)
        out = store.array(f"blocks/s{site.stage}.b{site.block}/attention")
        np.testing.assert_allclose(summed, out, atol=1e-5 * np.abs(out).max())
    for stage in {site.stage for site in store.sites}:
        stream = store.array(f"blocks/s{stage}.b0/stream").astype(np.float64)
        for site in store.sites:
            if site.stage == stage:
                stream = stream + store.array(f"blocks/s{stage}.b{site.block}/{site.kind}")
        end = store.array(f"stages/s{stage}")
        np.testing.assert_allclose(stream, end, atol=1e-5 * np.abs(end).max())
    assert store.has_text
    assert len(store.class_embeddings()) == len(dataset.classes)


def test_changes_are_refused_by_name(tmp_path, model, dataset) -> None:
    run(model, dataset, tmp_path)
    other = load_dataset("synthetic", n_clips=22, duration_s=1.0, seed=1)
    for changed, name in (
        (lambda: run(tiny_model(seed=1), dataset, tmp_path), r"model\.sha256"),
        (lambda: run(model, other, tmp_path), r"dataset\.fingerprint"),
        (lambda: run(model, dataset, tmp_path, capture="direct"), r"capture\.kinds"),
        (lambda: run(model, dataset, tmp_path, batch_size=3), r"run\.batch_size: 8 → 3"),
        (lambda: run(model, dataset, tmp_path, long="center"), r"run\.long: first → center"),
        (lambda: run(model, dataset, tmp_path, limit=4), r"dataset\.n_clips: 22 → 4"),
    ):
        with pytest.raises(StoreError, match=name):
            changed()
    found = run(model, other, tmp_path, capture="stages", overwrite=True, shard_size=30)
    assert found.n_shards_made == 1
    assert found.store.kinds == ("embedding", "stages")
    assert verify_store(tmp_path) == []


def test_shards_without_a_manifest_are_refused(tmp_path, model, dataset) -> None:
    run(model, dataset, tmp_path)
    (tmp_path / "store" / "manifest.json").unlink()
    with pytest.raises(StoreError, match="has shards but no manifest"):
        run(model, dataset, tmp_path)
    (tmp_path / "store" / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match="damaged"):
        run(model, dataset, tmp_path)
    assert run(model, dataset, tmp_path, overwrite=True).n_shards_made == 4


def test_skipped_clips_have_reasons_and_no_rows(tmp_path, model, dataset) -> None:
    bad = {1: "no samples", 6: "cut short", 7: "cut short", 8: "x", 9: "x", 10: "x", 11: "x"}
    broken_ids = {dataset.clips[i].id: why for i, why in bad.items()}

    def make(clip, rate):
        if clip.id in broken_ids:
            raise AudioError(f"'{clip.id}' {broken_ids[clip.id]}")
        return dataset.make(clip, rate)

    partly = dataclasses.replace(dataset, make=make)
    kinds = "heads,moments,tokens,attention"
    # the whole second shard (6 to 11) cannot be read
    found = run(model, partly, tmp_path / "some", capture=kinds)
    assert found.n_ok == 15
    assert found.reasons == {"the clip no samples": 1, "the clip cut short": 2, "the clip x": 4}
    store = found.store
    assert set(store.skipped) == set(broken_ids)
    assert len(store.all_clips) == 22
    good = [i for i in range(22) if i not in bad]
    assert store.clips["id"].tolist() == [dataset.clips[i].id for i in good]
    every = run(model, dataset, tmp_path / "all", capture=kinds).store
    for name in store.names:
        if name.startswith("heads/"):
            scale = np.abs(every.array(name)).max()
            np.testing.assert_allclose(
                store.array(name), every.array(name)[good], atol=2e-6 * scale
            )
    site = store.attention_sites[0]
    rows = store.array(f"tokens/{site}/sample_at")
    assert len(rows)
    assert rows.max() < 15
    means = store.array(f"tokens/{site}/sample").astype(np.float32).mean((2, 3))
    np.testing.assert_allclose(means, store.heads(site)[rows], atol=1e-2)
    assert store.moments(site).n == 15 * 256


def test_nothing_readable_is_an_error(tmp_path, model, dataset) -> None:
    def make(clip, rate):
        raise AudioError(f"'{clip.id}' is empty")

    silent = dataclasses.replace(dataset, make=make)
    for kinds in ("heads", "attention"):
        with pytest.raises(StoreError, match=r"none of the 22 clips.*the clip is empty"):
            run(model, silent, tmp_path / kinds, capture=kinds)


def test_a_model_that_breaks_down_is_an_error(tmp_path, dataset) -> None:
    broken = tiny_model()
    with torch.no_grad():
        broken.encoder.norm.weight[0] = float("nan")
    with pytest.raises(ModelError, match="not finite for the clip '0000000"):
        run(broken, dataset, tmp_path)


def test_bad_requests(tmp_path, model, dataset) -> None:
    with pytest.raises(InputError, match="'tile'"):
        run(model, dataset, tmp_path, long="tile")
    with pytest.raises(InputError, match="must be positive"):
        run(model, dataset, tmp_path, batch_size=0)
    with pytest.raises(InputError, match="'hats'"):
        run(model, dataset, tmp_path, capture="hats")
    with pytest.raises(DatasetError, match="nowhere"):
        run(model, "nowhere", tmp_path)
    with pytest.raises(ModelError, match="nobody"):
        run("nobody", dataset, tmp_path)


def test_reasons_lose_names_and_machine_paths() -> None:
    clip = Clip("a/b.wav", path=Path("/home/ann/data/a/b.wav"))
    error = AudioError("'/home/ann/data/a/b.wav' is cut short; see /home/ann/data/log.txt")
    assert reason(error, clip) == "the clip is cut short; see …/log.txt"


def test_limit_is_stamped(tmp_path, model, dataset) -> None:
    found = run(model, dataset, tmp_path, limit=5)
    assert found.n_ok == 5
    assert found.store.manifest["partial"] == {"n_clips": 5, "of": 22}
    assert run(model, dataset, tmp_path / "all").store.manifest["partial"] is None


def test_size_of_a_plain_store_at_tiny(tmp_path) -> None:
    """Heads and embeddings of HTS-AT tiny take at most 20 kB a clip."""
    full = ra.load_model("htsat-tiny-random", device="cpu")
    data = load_dataset("synthetic", n_clips=2, duration_s=1.0)
    store = run(full, data, tmp_path, capture="heads,embedding").store
    assert len(store.all_heads) == 184
    rows = sum(
        piece.nbytes // len(piece)
        for name in store.names
        if not name.startswith("heads/")
        for piece in store.pieces(name)
    )
    packed = sum(site.n_heads * (3 * site.d_head + 1) for site in store.attention_sites)
    size = (tmp_path / "store" / "shard-00000.safetensors").stat().st_size
    assert size < 2 * (rows + packed) + 4000  # a header, once for 128 clips
    assert rows + packed + 4000 / 128 <= 20_000


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
    """A few kills here; `benchmarks/kill.py` does thirty."""
    done = subprocess.run(
        [sys.executable, str(PROJECT / "benchmarks" / "kill.py"), "--kills", "3"],
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
    np.testing.assert_allclose(store.embedding(), vit.embed_audio(waves), atol=1e-5)
    site = store.attention_sites[0]
    # maps of the first clip's size only, and rows that are of that length
    maps, at = (store.array(f"attention/{site}/{name}") for name in ("maps", "maps_at"))
    assert len(maps) == len(at) > 0
    lengths = [len(wave) for wave in waves]
    assert {lengths[row] for row in at[:, 0]} == {lengths[0]}
    assert store.array(f"tokens/{site}/sample").shape[2] == 64
