"""What is read back from a store equals what the model did."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_model import CONFIG, tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError, StoreError
from residual_audio.extraction.extraction import extract
from residual_audio.metrics.moments import Moments
from residual_audio.store import Store, open_store
from residual_audio.store.other_formats import export_store
from residual_audio.store.verify import verify_store
from residual_audio.types import Head

N = 21


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def dataset():
    return load_dataset("synthetic", n_clips=N, duration_s=1.0)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, model, dataset) -> Path:
    folder = tmp_path_factory.mktemp("run")
    sample = {"n_maps": 5, "n_token_clips": 4}
    extract(
        model,
        dataset,
        folder,
        capture="all",
        shard_size=8,
        batch_size=4,
        sample=sample,
        device="cpu",
    )
    return folder


@pytest.fixture(scope="module")
def store(run_folder) -> Store:
    return open_store(run_folder)


@pytest.fixture(scope="module")
def whole(model, dataset) -> dict:
    """Full tensors of every clip, in one batch."""
    waves = [model.windows(dataset.read(clip, 8000))[0] for clip in dataset.clips]
    kept: dict = {}

    class Keep:
        points = frozenset({"raw", "out", "stream", "end", "maps"})

        def __call__(self, point, where, value):
            kept[str(where), point] = value

    with torch.inference_mode():
        encoded = model.encode(model.front_end(torch.from_numpy(np.stack(waves))), tap=Keep())
        kept["latent"] = encoded.latent
        kept["joint"] = model.joint(encoded)
    return kept


def close(found: np.ndarray, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    scale = float(expected.abs().max())
    np.testing.assert_allclose(found, expected.numpy(), atol=tolerance * scale, rtol=0)


def test_rows_are_the_clips_in_order(store, dataset) -> None:
    assert len(store) == len(store.clips) == N
    assert store.clips["id"].tolist() == [clip.id for clip in dataset.clips]
    assert store.clips["label"].tolist() == [clip.label for clip in dataset.clips]
    assert store.clips["group"].tolist() == [clip.group for clip in dataset.clips]
    assert store.clips["captions"].tolist() == [clip.captions for clip in dataset.clips]
    assert store.classes == dataset.classes
    assert store.skipped == {}
    assert len(store.manifest["shards"]) == 3


def test_heads_embedding_blocks_and_stages(store, whole) -> None:
    close(store.latent(), whole["latent"])
    close(store.embedding(unit=False), whole["joint"])
    np.testing.assert_allclose(np.linalg.norm(store.embedding(), axis=1), 1, rtol=1e-6)
    for site in store.attention_sites:
        close(store.heads(site), whole[str(site), "raw"].mean(1))
        close(store.heads(str(site)), whole[str(site), "raw"].mean(1))
        block = f"blocks/s{site.stage}.b{site.block}"
        close(store.array(f"{block}/attention"), whole[str(site), "out"].mean(1))
        close(store.array(f"{block}/stream"), whole[str(site), "stream"].mean(1))
    for stage in range(4):
        close(store.array(f"stages/s{stage}"), whole[str(stage), "end"].mean(1))


def test_projected_heads_sum_to_the_attention_output(store) -> None:
    for site in store.attention_sites:
        total = sum(store.projected(head, bias=True) for head in site.heads)
        out = store.array(f"blocks/s{site.stage}.b{site.block}/attention")
        np.testing.assert_allclose(total, out, atol=1e-5 * np.abs(out).max())
    head = Head(1, 0, 2)
    np.testing.assert_array_equal(store.projected(head), store.projected("s1.b0.h2"))


def test_moments_cover_every_token_of_every_clip(store, whole) -> None:
    for site in store.attention_sites:
        raw = whole[str(site), "raw"].double().flatten(0, 1).transpose(0, 1).numpy()
        explicit = Moments.of(raw)
        found = store.moments(site)
        assert found.n == explicit.n == N * CONFIG.grid(site.stage) ** 2
        scale = np.abs(explicit.scatter).max()
        np.testing.assert_allclose(found.scatter, explicit.scatter, atol=1e-5 * scale)
        np.testing.assert_allclose(found.mean, explicit.mean, atol=1e-5)
    with pytest.raises(InputError, match="merged"):
        store.array("moments/s0.b0.attention/mean")


def test_samples_say_where_they_are_from(store, whole) -> None:
    site = store.attention_sites[0]
    maps, at = (store.array(f"attention/{site}/{name}") for name in ("maps", "maps_at"))
    assert len(maps) == len(at) == 5
    assert (np.diff(at[:, 0]) >= 0).all()
    for (row, window), found in zip(at, maps, strict=True):
        close(found.astype(np.float32), whole[str(site), "maps"][row, window], 2e-3)
    sample, rows = (store.array(f"tokens/{site}/{name}") for name in ("sample", "sample_at"))
    assert len(sample) == len(rows) == 4
    # averaged over the grid, the sampled tokens give the head means of the rows they name
    means = sample.astype(np.float32).mean((2, 3))
    close(means, torch.from_numpy(store.heads(site)[rows]), 5e-3)


def test_texts_are_embedded_once(store, model, dataset) -> None:
    texts, embeddings = store.texts()
    assert embeddings is not None
    assert embeddings.shape == (len(texts), 12)
    prompts = list(dataset.prompts())
    np.testing.assert_allclose(store.class_embeddings(), model.embed_text(prompts), rtol=1e-6)
    assert texts[: len(prompts)] == prompts
    sources = store.text_sources
    assert {"class", "caption", "built-in"} == set(sources)
    assert sources.count("built-in") > 400
    some = [texts.index("a dog barking"), sources.index("caption")]
    np.testing.assert_allclose(
        embeddings[some], model.embed_text([texts[i] for i in some]), rtol=1e-6
    )
    assert store.logit_scale == 20.0


def test_what_was_not_captured_is_named(tmp_path, model, dataset) -> None:
    found = extract(model, dataset, tmp_path, capture="heads", limit=3, device="cpu").store
    with pytest.raises(StoreError, match="capture …,stages"):
        found.array("stages/s0")
    with pytest.raises(InputError, match="no site 's7'"):
        found.heads("s7")


def test_reading_needs_no_torch(run_folder) -> None:
    program = (
        "import sys; from residual_audio.store import open_store\n"
        f"s = open_store({str(run_folder)!r}); s.heads(s.sites[0])\n"
        "s.moments(s.sites[0]); s.texts()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_verify_names_the_file_of_any_flipped_bit(run_folder) -> None:
    folder = run_folder / "store"
    assert verify_store(run_folder) == []
    draw = np.random.default_rng(0)
    files = sorted(folder.iterdir())
    assert len(files) == 7
    for path in files:
        data = path.read_bytes()
        places = {0, len(data) - 1, *draw.integers(0, len(data), 6).tolist()}
        for place in places:
            bit = 1 << int(draw.integers(8))
            path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
            problems = verify_store(run_folder)
            assert any(line.startswith(path.name) for line in problems), (path.name, place)
        path.write_bytes(data)
    assert verify_store(run_folder) == []


def test_verify_notices_missing_short_and_foreign_files(run_folder) -> None:
    folder = run_folder / "store"
    shard = folder / "shard-00001.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    assert any("bytes instead of" in line for line in verify_store(run_folder))
    shard.unlink()
    assert verify_store(run_folder) == ["shard-00001.safetensors: missing"]
    shard.write_bytes(data)
    (folder / "notes.txt").write_text("hello")
    (folder / ".shard-00009.safetensors.1-ab.tmp").write_text("half")
    found = verify_store(run_folder)
    assert any("not in the manifest" in line for line in found)
    assert any("left over" in line for line in found)
    (folder / "notes.txt").unlink()
    (folder / ".shard-00009.safetensors.1-ab.tmp").unlink()
    assert verify_store(run_folder / "nowhere") == ["manifest.json: missing"]


@pytest.mark.parametrize("name", ["x.h5", "x.zarr", "x.npz"])
def test_export_holds_everything(tmp_path, store, name: str) -> None:
    path = export_store(store, tmp_path / name)
    expected = {n: store.array(n) for n in store.names if not n.startswith("moments/")}
    expected |= {f"operators/{n}": store.operator(n) for n in store.operator_names}
    site = store.attention_sites[0]
    expected[f"moments/{site}/scatter"] = store.moments(site).scatter
    if name.endswith("npz"):
        with np.load(path, allow_pickle=False) as file:
            found = {n: file[n] for n in expected}
            manifest = json.loads(str(file["manifest"]))
            labels = file["clips/label"].tolist()
        assert zipfile.ZipFile(path).testzip() is None
    elif name.endswith("h5"):
        h5py = pytest.importorskip("h5py")
        with h5py.File(path) as file:
            found = {n: file[n][...] for n in expected}
            manifest = json.loads(file.attrs["manifest"])
            labels = [text.decode() for text in file["clips/label"][...]]
            assert json.loads(file["texts"][()])["classes"] == list(store.classes)
    else:
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(path, mode="r")
        found = {n: group[n][...] for n in expected}
        manifest = group.attrs["manifest"]
        labels = group.attrs["clips"]["label"]
    assert manifest["fingerprint"] == store.manifest["fingerprint"]
    assert labels == store.clips["label"].tolist()
    for n, array in expected.items():
        assert found[n].dtype == array.dtype
        np.testing.assert_array_equal(found[n], array, err_msg=n)
    with pytest.raises(InputError, match="exists"):
        export_store(store, path)
    if name.endswith("npz"):
        export_store(store, path, overwrite=True)


def test_export_refuses_other_endings(tmp_path, store) -> None:
    with pytest.raises(InputError, match=r"x\.mat"):
        export_store(store, tmp_path / "x.mat")


def test_no_store_and_unfinished_store(tmp_path) -> None:
    with pytest.raises(StoreError, match="no store in"):
        open_store(tmp_path)
