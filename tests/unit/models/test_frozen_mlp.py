"""An MLP that does not learn gives the values and gradients of autograd's own way."""

from __future__ import annotations

import pytest
import torch

from residual_audio.models import frozen_mlp
from residual_audio.models.block import Block
from residual_audio.models.encoder import Constant
from residual_audio.types import Site

ATTENTION, MLP = Site(0, 0, "attention", 2, 8, 16), Site(0, 0, "mlp", 0, 0, 16)


def _block() -> Block:
    torch.manual_seed(0)
    block = Block(16, 2, 32, 1e-5)
    torch.nn.init.normal_(block.norm2.weight, 1.0, 0.1)  # type: ignore[arg-type]
    torch.nn.init.normal_(block.norm2.bias, 0.0, 0.1)  # type: ignore[arg-type]
    return block.requires_grad_(False)


@pytest.mark.parametrize("added", [True, False])
def test_values_and_gradients_are_those_of_autograd(
    added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = _block()
    monkeypatch.setattr(frozen_mlp, "VALUES_AT_ONCE", 5 * 32)  # parts that do not divide the tokens
    x = torch.randn(3, 7, 16, requires_grad=True)
    slope = torch.randn(3, 7, 16)
    assert frozen_mlp.can_be_frozen(block, x) == torch.backends.mkldnn.is_available()
    out = block._mlp(x, added)
    (found,) = torch.autograd.grad(out, x, slope)
    inner = torch.nn.functional.gelu(block.fc1(block.norm2(x)))
    plain = block.fc2(inner) + (x if added else 0)
    (expected,) = torch.autograd.grad(plain, x, slope)
    torch.testing.assert_close(out, plain)
    torch.testing.assert_close(found, expected)


def test_an_mlp_that_learns_is_left_to_autograd() -> None:
    block = _block()
    block.fc1.weight.requires_grad_(True)
    assert not frozen_mlp.can_be_frozen(block, torch.randn(1, 2, 16))


@pytest.mark.parametrize("site", [ATTENTION, MLP])
@pytest.mark.parametrize("value", [0.0, 0.5])
@torch.no_grad()
def test_a_constant_is_what_any_function_that_gives_it_is(site: Site, value: float) -> None:
    block, x = _block(), torch.randn(2, 7, 16)
    known = block(x, ATTENTION, MLP, None, {(site, "out"): Constant(value)})
    asked = block(x, ATTENTION, MLP, None, {(site, "out"): lambda y: torch.full_like(y, value)})
    torch.testing.assert_close(known, asked)
