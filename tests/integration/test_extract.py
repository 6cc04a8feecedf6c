"""Extraction as a whole: resume, refusal, skipping."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from extracting import digests, run
from tiny_model import tiny_model

import residual_audio as ra
from residual_audio.data.registry import load_dataset
from residual_audio.direct.contributions import Contributions
from residual_audio.errors import AudioError, DatasetError, InputError, ModelError, StoreError
from residual_audio.models.registry import NANO
from residual_audio.passes.sources import reason
from residual_audio.progress import Progress
from residual_audio.store import lock
from residual_audio.store.verify import verify_store
from residual_audio.types import Clip


class Stopped(BaseException):
    pass


class StopAfter(Progress):
    def __init__(self, n_clips: int) -> None:
        self.left = n_clips

    def advance(self, n: int = 1, said: str = "") -> None:
        self.left -= n
        if self.left <= 0:
            raise Stopped


def test_resumed_is_the_same_as_uninterrupted(tmp_path, model, dataset) -> None:
    whole = run(model, dataset, tmp_path / "whole", capture="all")
    assert whole.n_shards_made == 4
    with pytest.raises(Stopped):
        run(model, dataset, tmp_path / "stopped", capture="all", progress=StopAfter(15))
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
    np.testing.assert_allclose(
        store.embedding(), model.embed_audio(waves, sample_rate=model.sample_rate_hz), atol=1e-6
    )


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
    with pytest.raises(InputError, match="goes with --long tile"):
        run(model, dataset, tmp_path, hop_s=1.0)
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


def test_a_shard_that_fails_is_told_and_the_rest_goes_on(tmp_path, model, dataset) -> None:
    """Clip 8 is of the second shard; the next run makes that shard and no other."""

    def make(clip, rate):
        if clip.id == dataset.clips[8].id:
            raise RuntimeError("a decoder broke down")
        return dataset.make(clip, rate)

    broken = dataclasses.replace(dataset, make=make)
    for _ in range(2):  # tried again, with the same end
        found = run(model, broken, tmp_path)
        assert found.n_ok == 16
        why = "its shard failed: RuntimeError: a decoder broke down"
        assert found.skipped == {clip.id: why for clip in dataset.clips[6:12]}
        assert found.store.manifest["failed_shards"] == [1]
    assert found.n_shards_made == 1
    assert run(model, dataset, tmp_path).n_shards_made == 1
    run(model, dataset, tmp_path / "whole")
    assert digests(tmp_path) == digests(tmp_path / "whole")


def test_a_failure_of_every_shard_ends_the_run(tmp_path, model, dataset) -> None:
    def make(clip, rate):
        raise RuntimeError("no decoder")

    with pytest.raises(RuntimeError, match="no decoder"):
        run(model, dataclasses.replace(dataset, make=make), tmp_path)
