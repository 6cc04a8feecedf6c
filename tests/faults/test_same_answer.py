"""One clip, one answer: whatever mode, threads, order or surroundings."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.extraction.extraction import extract
from residual_audio.surface.model import Model

CLIPS = [np.random.default_rng(i).normal(size=8000).astype(np.float32) / 10 for i in range(6)]


@pytest.fixture(scope="module")
def model() -> Model:
    return tiny_model()


def embed(model: Model, clips: list[np.ndarray] = CLIPS, **options: int) -> np.ndarray:
    return model.embed_audio(clips, sample_rate=8000, **options)


def state(model: Model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_model_in_training_mode_gives_the_same_and_is_left_as_it_was(model: Model) -> None:
    want = embed(model)
    before = state(model)
    model.train()
    try:
        assert np.array_equal(embed(model), want)
        model.embed_text(["a dog"])
        assert all(part.training for part in model.modules())
    finally:
        model.eval()
    assert all(torch.equal(value, before[name]) for name, value in state(model).items())


def test_extraction_with_a_model_in_training_mode(model: Model, tmp_path: Path) -> None:
    data = load_dataset("synthetic", n_clips=4, duration_s=1.0)
    want = extract(model, data, tmp_path / "a", device="cpu").store.embedding()
    before = state(model)
    model.train()
    try:
        found = extract(model, data, tmp_path / "b", device="cpu").store.embedding()
    finally:
        model.eval()
    assert np.array_equal(found, want)
    assert all(torch.equal(value, before[name]) for name, value in state(model).items())


def test_shards_are_the_same_bytes_for_one_and_two_threads(model: Model, tmp_path: Path) -> None:
    data = load_dataset("synthetic", n_clips=11, duration_s=1.0)
    before = torch.get_num_threads()
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            out = tmp_path / str(n)
            extract(model, data, out, capture="all", device="cpu", shard_size=9)
    finally:
        torch.set_num_threads(before)
    for name in ("shard-00000.safetensors", "shard-00001.safetensors"):
        one, two, three = ((tmp_path / n / "store" / name).read_bytes() for n in "123")
        assert one == two == three


def test_batches_order_and_runs(model: Model) -> None:
    want = embed(model)
    assert np.array_equal(embed(model), want)
    assert np.array_equal(embed(model, CLIPS[::-1])[::-1], want) or np.allclose(
        embed(model, CLIPS[::-1])[::-1], want, atol=1e-6
    )
    for size in (1, 3, 16):
        np.testing.assert_allclose(embed(model, batch_size=size), want, atol=1e-6)


def test_ten_threads_at_once(model: Model) -> None:
    want = embed(model)
    found: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: found.append(embed(model))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    assert all(np.array_equal(one, want) for one in found)


def test_surroundings_do_not_matter(model: Model) -> None:
    want = embed(model)
    torch.set_default_dtype(torch.float64)
    try:
        np.testing.assert_allclose(embed(model), want, atol=1e-6)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(embed(model), want)
    with torch.inference_mode():
        assert np.array_equal(embed(model), want)
    with torch.device("meta"):
        assert np.array_equal(embed(model), want)
    torch.use_deterministic_algorithms(True)
    try:
        assert np.array_equal(embed(model), want)
    finally:
        torch.use_deterministic_algorithms(False)


ELSEWHERE = """
import os, sys
import numpy as np, torch
sys.path[:0] = [{support!r}]
from tiny_model import tiny_model
torch.set_num_threads(2)
model = tiny_model()
clips = [np.random.default_rng(i).normal(size=8000).astype(np.float32) / 10 for i in range(6)]
embed = lambda: model.embed_audio(clips, sample_rate=8000)
want = embed()

class Embeds(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        return embed()

for found in torch.utils.data.DataLoader(Embeds(), batch_size=None, num_workers=1, timeout=60):
    np.testing.assert_allclose(found, want, atol=1e-6)
child = os.fork()
if not child:
    os._exit(0 if np.allclose(embed(), want, atol=1e-6) else 1)
assert os.waitpid(child, 0)[1] == 0
before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
for _ in range(60):
    embed()
assert (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))) == before
print("the same")
"""


def test_in_a_worker_of_a_loader_and_after_a_fork_and_nothing_is_left() -> None:
    support = str(Path(__file__).resolve().parents[1] / "support")
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE.format(support=support)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "the same\n", done.stderr[-2000:]
