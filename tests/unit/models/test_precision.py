"""Half the bits: products only, near float32, and refused where nobody gains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_model import tiny_model

from residual_audio.data.registry import load_dataset
from residual_audio.errors import InputError
from residual_audio.extraction.extraction import extract
from residual_audio.models import precision
from residual_audio.models.linear import linear
from residual_audio.models.precision import check_precision, products, products_in

CPU = torch.device("cpu")


@pytest.fixture
def able(monkeypatch):
    """A processor that is fast at it, whichever runs the tests: results do not depend on it."""
    monkeypatch.setattr(precision, "_bf16_reason", lambda device: None)


def test_products_are_halved_and_sums_are_not(able) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(32, 16), torch.randn(5, 32)
    with torch.inference_mode():
        exact = linear(layer, x, add=torch.full((5, 16), 1e4))
        with products_in("bf16", CPU):
            assert linear(layer, x, widen=False).dtype == torch.bfloat16
            assert linear(layer, x).dtype == torch.float32
            found = linear(layer, x, add=torch.full((5, 16), 1e4))
            with torch.no_grad():
                layer.weight.zero_()  # kept weights follow their own
                layer.bias.zero_()
            assert not linear(layer, x).any()
    assert found.dtype == torch.float32
    # in bfloat16 a sum near 10,000 would be off by up to 32
    torch.testing.assert_close(found, exact, rtol=0, atol=0.05)
    assert products() is None


def test_a_store_says_its_precision_and_is_near_float32(able, tmp_path) -> None:
    model = tiny_model()
    sounds = load_dataset("synthetic", n_clips=6, duration_s=1.0)
    options = {"device": "cpu", "capture": "heads,attention,direct"}
    full = extract(model, sounds, tmp_path / "full", **options).store
    half = extract(model, sounds, tmp_path / "half", precision="bf16", **options).store
    assert (full.run_info.precision, half.run_info.precision) == ("float32", "bf16")
    assert "precision" not in full.asked["run"]
    for name in full.names:
        if not name.startswith("attention/") or name.endswith("entropy"):
            assert half.array(name).dtype == full.array(name).dtype
            error = np.linalg.norm(half.array(name) - full.array(name))
            assert error <= 0.03 * np.linalg.norm(full.array(name)), name
    assert (full.embedding() * half.embedding()).sum(1).min() > 0.999
    assert not np.array_equal(full.embedding(), half.embedding())


def test_refused_with_a_reason(monkeypatch) -> None:
    with pytest.raises(InputError, match="fp16 is refused on cpu: half floats are fast on CUDA"):
        check_precision("fp16", CPU)
    with pytest.raises(InputError, match="no precision 'int8'"):
        check_precision("int8", CPU)
    with pytest.raises(InputError, match="bf16 is refused on mps"):
        check_precision("bf16", torch.device("mps"))
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    with pytest.raises(InputError, match="neither AVX512-BF16 nor AMX"):
        check_precision("bf16", CPU)
    check_precision("float32", CPU)


def test_gradients_pass_frozen_weights_as_they_pass_any() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(32, 16)
    rows, stream = torch.randn(3, 5, 32), torch.randn(3, 5, 16)
    found = []
    for learns in (True, False):
        layer.requires_grad_(learns)
        x, add = rows.clone().requires_grad_(True), stream.clone().requires_grad_(True)
        out = linear(layer, x.transpose(0, 1).transpose(0, 1), add=add)
        out = out + linear(layer, 2 * x, gelu=True)
        (out**2).sum().backward()
        found.append((out.detach(), x.grad, add.grad))
    assert layer.weight.grad is not None  # those that learn still do
    for mine, reference in zip(*found, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-5, atol=1e-5)
