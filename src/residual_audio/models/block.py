"""The pre-norm transformer block of every encoder, tapped and edited in one place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.models.encoder import Constant, Edit, Tap
from residual_audio.models.frozen_mlp import FrozenMLP, can_be_frozen
from residual_audio.models.head_copies import HeadCopies, head_maps, run_copies
from residual_audio.models.linear import linear
from residual_audio.types import Site, SiteKind

VALUES_AT_ONCE = 1 << 22
"""Values inside one block that are worked on at a time: 16 MB in float32."""

TOKENS_AT_ONCE = 4096
"""Tokens in the MLP at a time on a CPU: what is between its two products stays in the cache."""


class Block(nn.Module):
    """Attention and MLP, each added to the stream; `attend` says which tokens see each other."""

    norm1: nn.Module
    norm2: nn.Module

    def __init__(self, width: int, n_heads: int, hidden: int, norm_eps: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_head = width // n_heads
        self.norm1 = nn.LayerNorm(width, eps=norm_eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=norm_eps)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def attend(self, x: Tensor, maps: bool) -> tuple[Tensor, Tensor | None]:
        """Normed stream → raw head outputs in stream order, attention maps if asked."""
        qkv = linear(self.qkv, x).unflatten(-1, (3, self.n_heads, self.d_head))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each: clip head token d_head
        raw, probabilities = scaled_attention(q, k, v, None, maps)
        raw = raw.transpose(1, 2).flatten(2)
        return raw, None if probabilities is None else probabilities[:, None]

    def output_projection(self, kind: SiteKind) -> tuple[Tensor, Tensor]:
        """The matrix [inner, width] and bias that end the attention or the MLP."""
        layer = self.proj if kind == "attention" else self.fc2
        return layer.weight.T, layer.bias

    @torch.no_grad()
    def keep_heads(self, heads: Sequence[int], bias: Tensor) -> None:
        """Only these heads stay in the weights; `bias` [width] is W_O's from now on."""
        n, d, width = self.n_heads, self.d_head, self.qkv.in_features
        keep, old_qkv, old_proj = list(heads), self.qkv, self.proj
        qkv = nn.Linear(width, 3 * len(keep) * d)
        qkv.weight.copy_(old_qkv.weight.view(3, n, d, width)[:, keep].reshape(-1, width))
        qkv.bias.copy_(old_qkv.bias.view(3, n, d)[:, keep].reshape(-1))
        proj = nn.Linear(len(keep) * d, old_proj.out_features)
        proj.weight.copy_(old_proj.weight.view(-1, n, d)[:, keep].flatten(1))
        proj.bias.copy_(bias)
        self.qkv, self.proj, self.n_heads = qkv.to(bias), proj.to(bias), len(keep)
        self.requires_grad_(False)

    def forward(self, x: Tensor, attention: Site, mlp: Site, tap: Tap | None, edit: Edit) -> Tensor:
        """Stream in → stream out."""
        points = tap.points if tap is not None else frozenset[str]()
        instead = edit.get((attention, "out"))
        if isinstance(instead, Constant) and tap is None and (attention, "raw") not in edit:
            x = x + instead.value
            return add_site(x, mlp, lambda to: self._mlp(x, to is not None), tap, edit)
        if tap is not None and "stream" in points:
            tap("stream", attention, x)
        attended = [self.attend(self.norm1(part), "maps" in points) for part in self._parts(x)]
        raw = joined([heads for heads, _ in attended])
        if tap is not None and "maps" in points:
            tap("maps", attention, joined([maps for _, maps in attended if maps is not None]))
        del attended
        change = edit.get((attention, "raw"))
        alone = tap is None and not edit.keys() & {(attention, "out"), (mlp, "out")}
        if isinstance(change, HeadCopies) and len(raw) == 1 and alone:
            maps = head_maps(self)
            if maps is not None:
                return run_copies(self, maps, x, raw, change)
        if change is not None or "raw" in points:
            heads = raw.unflatten(-1, (self.n_heads, self.d_head))
            if change is not None:
                heads = change(heads)
                raw = heads.flatten(-2)
                x = x.expand(len(raw), -1, -1)  # an edit may make copies of the one clip
            if tap is not None and "raw" in points:
                tap("raw", attention, heads)
        x = add_site(x, attention, lambda to: linear(self.proj, raw, add=to), tap, edit)
        return add_site(x, mlp, lambda to: self._mlp(x, to is not None), tap, edit)

    def _parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """The clips in groups whose widest values stay near the cores, in memory that is used
        again: fresh memory for a whole batch costs a tenth of the time."""
        if torch.jit.is_tracing():  # a graph holds for any number of clips
            return (x,)
        values_a_clip = x.shape[1] * self.fc1.out_features
        return x.split(max(1, VALUES_AT_ONCE // values_a_clip))

    def _mlp(self, x: Tensor, added: bool) -> Tensor:
        """What the MLP adds to the stream, or the stream with it added."""
        if can_be_frozen(self, x):
            tokens: Tensor = FrozenMLP.apply(x.flatten(0, 1), self, added)  # type: ignore[no-untyped-call]
            return tokens.view_as(x)
        parts = []
        on_cpu = x.device.type == "cpu" and not torch.jit.is_tracing()
        for part in x.flatten(0, 1).split(TOKENS_AT_ONCE) if on_cpu else self._parts(x):
            hidden = linear(self.fc1, self.norm2(part), gelu=True, widen=False)
            parts.append(linear(self.fc2, hidden, add=part if added else None))
        return joined(parts).view_as(x)


def joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def add_site(
    x: Tensor, site: Site, out_of: Callable[[Tensor | None], Tensor], tap: Tap | None, edit: Edit
) -> Tensor:
    """The stream with what a site adds; that is formed on its own only if somebody asks.

    `out_of` gives the sum with a tensor, or, for None, what is added alone.
    """
    change = edit.get((site, "out"))
    tapped = tap is not None and "out" in tap.points
    if change is None and not tapped:
        return out_of(x)
    if isinstance(change, Constant) and not tapped:
        return x + change.value
    out = out_of(None)
    if change is not None:
        out = change(out)
    if tap is not None and tapped:
        tap("out", site, out)
    return x + out


def scaled_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, maps: bool
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ / √d + bias) v; fused, unless the probabilities are wanted too, or the bias
    learns (no fused kernel has its gradient, and torch's way around that is slower than this)."""
    if not maps and not (bias is not None and bias.requires_grad):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), None
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    probabilities = scores.softmax(-1).to(v.dtype)
    return probabilities @ v, probabilities if maps else None


def normalise(
    norm: nn.LayerNorm,
    x: Tensor,
    stage: int,
    tap: Tap | None,
    n_averaged: int = 1,
    share: Tensor | None = None,
) -> Tensor:
    """LayerNorm; a tap on `scale` also receives 1/σ of every token of the stream.

    `n_averaged` tokens of the stream each were averaged into one of `x`: they share its σ. `share`
    [clip, token] is what a token of `x` counts in the pool, where that is no plain mean.
    """
    if tap is None or "scale" not in tap.points:
        return norm(x)
    out, _, scale = torch.native_layer_norm(x, [x.shape[-1]], norm.weight, norm.bias, norm.eps)
    weight = scale[..., 0] if share is None else scale[..., 0] * share
    tap("scale", stage, weight.repeat_interleave(n_averaged, 1))
    return out
