"""Attention whose weights do not learn, there and back for gradients.

Autograd would stack the gradients of queries, keys and values and lay the stack out once more for
the projection; here each is written once to where the projection reads it. What a permutation of
tokens did is undone by the inverse one, where autograd would add rows up one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn.attention import SDPBackend

from residual_audio.models.linear import backwards, is_frozen, linear
from residual_audio.models.precision import products

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_FLASH_BACK = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Windows:
    """Which tokens see each other."""

    size: int
    """Tokens of each; they follow one another."""
    gather: Tensor | None = None
    """Tokens are put in this order first."""
    scatter: Tensor | None = None
    """The inverse."""

    def split(self, qkv: Tensor, n_heads: int) -> tuple[Tensor, Tensor, Tensor]:
        """Each [clip·window, head, token, d_head]."""
        q, k, v = qkv.view(-1, self.size, 3, n_heads, qkv.shape[-1] // (3 * n_heads)).permute(
            2, 0, 3, 1, 4
        )
        return q, k, v


def can_be_frozen(layer: nn.Linear, n_heads: int, x: Tensor, bias: Tensor | None) -> bool:
    """Whether gradients pass through, nothing asks for its own, and torch would use this kernel."""
    if not (torch.is_grad_enabled() and x.requires_grad and is_frozen(layer, x)):
        return False
    now = products()
    if (now is not None and now.type is not None) or (bias is not None and bias.requires_grad):
        return False
    head = x.new_empty(1, n_heads, 1, layer.out_features // (3 * n_heads))
    chosen = torch._fused_sdp_choice(head, head, head)
    return bool(chosen == SDPBackend.FLASH_ATTENTION.value)


class _Kept(FunctionCtx):
    """What the way there leaves for the way back."""

    saved_tensors: tuple[Tensor, ...]
    layer: nn.Linear
    n_heads: int
    windows: Windows


class FrozenAttention(torch.autograd.Function):
    """Normed stream [clip, token, width] → raw head outputs in stream order."""

    @staticmethod
    def forward(
        ctx: _Kept,
        x: Tensor,
        layer: nn.Linear,
        n_heads: int,
        bias: Tensor | None,
        windows: Windows,
    ) -> Tensor:
        qkv = linear(layer, _ordered(x, windows.gather))
        q, k, v = windows.split(qkv, n_heads)
        raw, log_sum = _FLASH(q, k, v, attn_mask=bias)
        ctx.save_for_backward(qkv, raw, log_sum, *(() if bias is None else (bias,)))
        ctx.layer, ctx.n_heads, ctx.windows = layer, n_heads, windows
        return _ordered(raw.transpose(1, 2).reshape(*x.shape[:2], -1), windows.scatter)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: _Kept, slope: Tensor) -> tuple[Tensor, None, None, None, None]:
        qkv, raw, log_sum, *bias = ctx.saved_tensors
        windows = ctx.windows
        slope = _ordered(slope.contiguous(), windows.gather)
        of_raw = slope.view(-1, windows.size, ctx.n_heads, raw.shape[-1]).transpose(1, 2)
        q, k, v = windows.split(qkv, ctx.n_heads)
        mask = bias[0] if bias else None
        found = _FLASH_BACK(of_raw, q, k, v, raw, log_sum, 0.0, False, attn_mask=mask)
        inner = torch.cat([of.transpose(1, 2).flatten(2) for of in found], -1).view_as(qkv)
        return _ordered(backwards(ctx.layer, inner), windows.scatter), None, None, None, None


def _ordered(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.index_select(1, order)
