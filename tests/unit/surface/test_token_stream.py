"""Tokens of a unit in batches: every token once, mixed, the same every time."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

import residual_audio as ra
from residual_audio.errors import InputError


@pytest.fixture(scope="module")
def model() -> ra.Model:
    return ra.load_model("nano", "cpu")


@pytest.fixture(scope="module")
def waves() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=32_000) * 0.1).astype(np.float32) for _ in range(5)]


def in_order(rows: torch.Tensor) -> np.ndarray:
    """Rows sorted, to be compared whatever their order."""
    array = rows.numpy().astype(np.float64)
    return array[np.lexsort(array.T)]


@pytest.mark.parametrize("unit", ["s3.b1.h0", "s2.b5.mlp", "s3.b0.stream", "s3.end"])
def test_every_token_comes_once(model, waves, unit: str) -> None:
    want = torch.from_numpy(model.run(waves, keep=unit, sample_rate=32_000)[unit]).flatten(0, 1)
    batches = list(ra.token_stream(model, waves, unit, batch_size=30, mix=2, sample_rate=32_000))
    assert all(batch.shape == (30, want.shape[1]) for batch in batches[:-1])
    assert all(batch.dtype == torch.float32 for batch in batches)
    np.testing.assert_allclose(in_order(torch.cat(batches)), in_order(want), atol=1e-6)


def test_the_same_seed_gives_the_same_batches_and_mixes_clips(model, waves) -> None:
    def first(seed: int, mix: int = 8) -> torch.Tensor:
        stream = ra.token_stream(
            model, waves, "s3.b1.h0", batch_size=16, mix=mix, seed=seed, sample_rate=32_000
        )
        return next(iter(stream))

    assert torch.equal(first(0), first(0))
    assert not torch.equal(first(0), first(1))
    tokens = model.run(waves, keep="s3.b1.h0", sample_rate=32_000)["s3.b1.h0"]
    owner = np.concatenate([[i] * tokens.shape[1] for i in range(len(waves))])
    flat = tokens.reshape(-1, tokens.shape[-1])
    nearest = [int(((flat - row) ** 2).sum(1).argmin()) for row in first(0).numpy()]
    assert len({int(owner[i]) for i in nearest}) > 1
    in_turn = [int(((flat - row) ** 2).sum(1).argmin()) for row in first(0, mix=1).numpy()]
    assert len({int(owner[i]) for i in in_turn}) == 1


def test_it_goes_on_for_ever_where_asked(model, waves) -> None:
    stream = ra.token_stream(
        model, waves[:1], "s3.b1.h0", batch_size=16, epochs=None, mix=1, sample_rate=32_000
    )
    found = list(islice(stream, 3))
    assert torch.equal(in_order_tensor(found[0]), in_order_tensor(found[2]))


def in_order_tensor(rows: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(in_order(rows))


def test_bad_questions_are_refused_before_anything_runs(model, waves) -> None:
    with pytest.raises(InputError, match="no unit"):
        ra.token_stream(model, waves, "s9.b1.h0")
    with pytest.raises(InputError, match="at least one sound"):
        ra.token_stream(model, [], "s3.b1.h0")
    with pytest.raises(InputError, match="at least 1"):
        ra.token_stream(model, waves, "s3.b1.h0", batch_size=0)
    with pytest.raises(InputError, match="no vectors of tokens"):
        next(iter(ra.token_stream(model, waves, "s3.b1.maps", sample_rate=32_000)))
