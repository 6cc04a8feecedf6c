"""Attention that does not learn gives the values and gradients of autograd's own way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from residual_audio.models import htsat
from residual_audio.models.htsat import HTSATConfig, SwinBlock
from residual_audio.models.precision import prepare, products_in

CONFIG = HTSATConfig(embed_dim=12, depths=(2, 2), n_heads=(2, 4), window=4, spec_size=32, n_mels=16)


def _block(index: int) -> SwinBlock:
    torch.manual_seed(index)
    return SwinBlock(CONFIG, 0, index).requires_grad_(False)


def _there_and_back(block: SwinBlock, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_(True)
    out, _ = block.attend(2 * x, False)
    slope = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return out.detach(), torch.autograd.grad(out, x, slope)[0]


@pytest.mark.parametrize("index", [0, 1])
def test_values_and_gradients_are_those_of_autograd(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = _block(index)
    assert block.shifted == bool(index)
    x = torch.randn(3, 64, 12)
    seen = []
    asked = htsat.can_be_frozen
    monkeypatch.setattr(
        htsat, "can_be_frozen", lambda *given: seen.append(asked(*given)) or seen[-1]
    )
    found = _there_and_back(block, x)
    assert seen == [torch.backends.mkldnn.is_available()]
    monkeypatch.setattr(htsat, "can_be_frozen", lambda *_: False)
    for mine, expected in zip(found, _there_and_back(block, x), strict=True):
        torch.testing.assert_close(mine, expected)


def test_attention_that_learns_is_left_to_autograd() -> None:
    block = _block(1)
    x = torch.randn(1, 64, 12, requires_grad=True)

    def frozen(x: Tensor) -> bool:
        return htsat.can_be_frozen(block.qkv, block.n_heads, x, block.attention_bias(1))

    assert frozen(x) == torch.backends.mkldnn.is_available()
    assert not frozen(x.detach())
    with torch.no_grad():
        assert not frozen(x)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert not frozen(x)
    block.bias_table.requires_grad_(True)
    assert not frozen(x)
    block.bias_table.requires_grad_(False)
    block.qkv.weight.requires_grad_(True)
    assert not frozen(x)


def test_products_in_half_the_bits_are_left_to_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("residual_audio.models.precision.check_precision", lambda *_: None)
    block, x = _block(0), torch.randn(1, 64, 12, requires_grad=True)
    cpu = torch.device("cpu")
    with products_in("bf16", cpu, prepare("bf16", cpu)):
        assert not htsat.can_be_frozen(block.qkv, block.n_heads, x, None)
