"""An MLP that does not learn, there and back for gradients: a few tokens at a time.

Autograd would keep and read whole batches between norm, products and GELU, from fresh memory each.
Here a part goes through all of them while it is in the cache, and one value a hidden unit is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from residual_audio.models.linear import backwards, is_frozen, linear

if TYPE_CHECKING:
    from residual_audio.models.block import Block

VALUES_AT_ONCE = 1 << 20
"""Hidden values that are worked on at a time: 4 MB, of which every core's share of the cache has
room for a few; smaller parts read the weights too often."""


def can_be_frozen(block: Block, x: Tensor) -> bool:
    """Whether gradients pass through and none of the weights asks for its own."""
    norm = block.norm2
    return (
        torch.is_grad_enabled()
        and type(norm) is nn.LayerNorm
        and not any(p.requires_grad for p in norm.parameters())
        and is_frozen(block.fc1, x)
        and is_frozen(block.fc2, x)
    )


class _Kept(FunctionCtx):
    """What the way there leaves for the way back."""

    saved_tensors: tuple[Tensor, ...]
    block: Block
    added: bool


class FrozenMLP(torch.autograd.Function):
    """Tokens [token, width] → the MLP of their norm, with the tokens added if asked."""

    @staticmethod
    def forward(ctx: _Kept, x: Tensor, block: Block, added: bool) -> Tensor:
        norm = block.norm2
        assert isinstance(norm, nn.LayerNorm)
        out, kept = torch.empty_like(x), []
        space = x.new_empty(len(_parts(x, block)[0]), block.fc1.out_features)
        for part, to in zip(_parts(x, block), _parts(out, block), strict=True):
            normed, mean, scale = torch.native_layer_norm(
                part, norm.normalized_shape, norm.weight, norm.bias, norm.eps
            )
            hidden = linear(block.fc1, normed)
            active = torch.ops.aten.gelu.out(hidden, out=space[: len(part)])
            to.copy_(linear(block.fc2, active, add=part if added else None))
            kept += [hidden, mean, scale]
        ctx.save_for_backward(x, *kept)
        ctx.block, ctx.added = block, added
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: _Kept, slope: Tensor) -> tuple[Tensor, None, None]:
        x, *kept = ctx.saved_tensors
        block, norm = ctx.block, ctx.block.norm2
        assert isinstance(norm, nn.LayerNorm)
        slope, out = slope.contiguous(), torch.empty_like(x)
        parts = zip(*(_parts(t, block) for t in (x, slope, out)), strict=True)
        for i, (part, of_part, to) in enumerate(parts):
            hidden, mean, scale = kept[3 * i : 3 * i + 3]
            inner = backwards(block.fc2, of_part)
            torch.ops.aten.gelu_backward.grad_input(inner, hidden, grad_input=inner)
            inner = backwards(block.fc1, inner)
            found, _, _ = torch.ops.aten.native_layer_norm_backward(
                inner, part, norm.normalized_shape, mean, scale, norm.weight, norm.bias,
                [True, False, False],
            )  # fmt: skip
            if ctx.added:
                torch.add(found, of_part, out=to)
            else:
                to.copy_(found)
        return out, None, None


def _parts(x: Tensor, block: Block) -> tuple[Tensor, ...]:
    return x.split(max(1, VALUES_AT_ONCE // block.fc1.out_features))
