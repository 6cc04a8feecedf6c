"""Copies of one clip that each have one head replaced, through the rest of that head's block.

Let y be the stream after the attention, all heads in place, and δ [token, d_head] what replacing
head h adds to its output. The copy's stream is y + δ W_h: no other head is asked again. Nor is the
wide first product of the MLP: with the norm's μ, σ and γ, and W̃_h the rows of W_O less their mean,

    norm(y + δ W_h) W₁ = ((y − μ) γ W₁ + δ (W̃_h γ W₁)) / σ' + β W₁

where the first term is of the clip, not of the copy, and the second is a product of d_head columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.models.linear import linear, product, version
from residual_audio.models.precision import products

if TYPE_CHECKING:
    from residual_audio.models.block import Block

VALUES_AT_ONCE = 1 << 18
"""Hidden values that are worked on at a time: 1 MB, a core's own cache."""


@dataclass(frozen=True)
class HeadCopies:
    """An edit at `raw`: copy i of the one clip has head `heads[i]` replaced."""

    heads: tuple[int, ...]
    value: Tensor | float
    """[copy, token or 1, d_head], or one number."""
    where: Tensor | None = None
    """[copy, token, 1], true where it is replaced; None: everywhere."""

    def __call__(self, x: Tensor) -> Tensor:
        """[1 or copy, token, head, d_head] → [copy, token, head, d_head]."""
        x = x.expand(len(self.heads), *x.shape[1:]).clone()
        rows = torch.arange(len(x), device=x.device)
        columns = torch.tensor(self.heads, device=x.device)
        x[rows, :, columns] = self._instead(x[rows, :, columns])
        return x

    def added(self, x: Tensor) -> Tensor:
        """[1, token, head, d_head] → [copy, token, d_head], what each replacement adds."""
        old = x[0, :, list(self.heads)].transpose(0, 1)
        return self._instead(old) - old

    def _instead(self, old: Tensor) -> Tensor:
        new = torch.as_tensor(self.value, dtype=old.dtype, device=old.device)
        return new.expand_as(old) if self.where is None else torch.where(self.where, new, old)


@dataclass(frozen=True)
class HeadMaps:
    """What a head adds to the stream and to the MLP's first product, from its raw output."""

    stream: Tensor
    """[head, d_head, width]: W_h."""
    hidden: Tensor
    """[head, d_head, hidden]: W̃_h γ W₁."""
    first: Tensor
    """[hidden, width]: γ W₁, as products read it."""
    bias: Tensor
    """[hidden]: β W₁ + b₁."""

    @classmethod
    def of(cls, block: Block, norm: nn.LayerNorm) -> HeadMaps:
        w_o, _ = block.output_projection("attention")
        first = block.fc1.weight * norm.weight
        inner = (w_o - w_o.mean(1, keepdim=True)) @ first.T
        heads = (block.n_heads, block.d_head)
        bias = F.linear(norm.bias, block.fc1.weight, block.fc1.bias)
        return cls(
            w_o.unflatten(0, heads).contiguous(),
            inner.unflatten(0, heads),
            first,
            bias,
        )


def head_maps(block: Block) -> HeadMaps | None:
    """Made once a run; None outside of runs, and where the block or its products are others."""
    now, norm = products(), block.norm2
    plain = type(norm) is nn.LayerNorm and norm.elementwise_affine and norm.bias is not None
    if now is None or now.type is not None or not plain or torch.is_grad_enabled():
        return None
    assert isinstance(norm, nn.LayerNorm)
    weights = (block.proj.weight, norm.weight, norm.bias, block.fc1.weight, block.fc1.bias)
    made_of = tuple(version(weight) for weight in weights)
    known = now.maps.get(block)
    if known is None or known[0] != made_of:
        known = now.maps[block] = (made_of, HeadMaps.of(block, norm))
    found = known[1]
    assert isinstance(found, HeadMaps)
    return found


def run_copies(block: Block, maps: HeadMaps, x: Tensor, raw: Tensor, copies: HeadCopies) -> Tensor:
    """Stream [1, token, width] and raw heads [1, token, head · d_head] → [copy, token, width]."""
    norm = block.norm2
    assert isinstance(norm, nn.LayerNorm)
    heads = list(copies.heads)
    added = copies.added(raw.unflatten(-1, (block.n_heads, block.d_head)))  # copy token d_head
    stream = linear(block.proj, raw, add=x)[0]  # token width
    shared = product(stream - stream.mean(1, keepdim=True), maps.first)  # token hidden
    out = torch.baddbmm(stream.expand(len(heads), -1, -1), added, maps.stream[heads])
    inner = maps.hidden[heads]
    for some, tokens in _parts(len(heads), *shared.shape):
        part = out[some, tokens]
        scale = torch.native_layer_norm(part, norm.normalized_shape, None, None, norm.eps)[2]
        hidden = shared[tokens].expand(len(part), -1, -1)
        hidden = torch.baddbmm(hidden, added[some, tokens], inner[some])
        hidden = torch.addcmul(maps.bias, hidden, scale)
        torch.ops.aten.gelu_(hidden)  # in the memory that it is in
        out[some, tokens] = linear(block.fc2, hidden, add=part.contiguous())
    return out


def _parts(n_copies: int, n_tokens: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Copies and tokens of each part: whole copies, or tokens of one."""
    tokens = max(1, min(n_tokens, VALUES_AT_ONCE // width))
    copies = max(1, VALUES_AT_ONCE // (n_tokens * width))
    for copy in range(0, n_copies, copies):
        for token in range(0, n_tokens, tokens):
            yield slice(copy, copy + copies), slice(token, token + tokens)
