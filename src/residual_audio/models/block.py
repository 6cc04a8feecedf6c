"""The pre-norm transformer block of every encoder, tapped and edited in one place."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.models.encoder import Edit, Tap
from residual_audio.models.linear import linear
from residual_audio.types import Site, SiteKind


class Block(nn.Module):
    """Attention and MLP, each added to the stream; `attend` says which tokens see each other."""

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

    def attend(self, x: Tensor, maps: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """Normed stream → raw head outputs in stream order, attention maps if asked, values."""
        qkv = linear(self.qkv, x).unflatten(-1, (3, self.n_heads, self.d_head))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each: clip head token d_head
        raw, probabilities = scaled_attention(q, k, v, None, maps)
        raw = raw.transpose(1, 2).flatten(2)
        return raw, None if probabilities is None else probabilities[:, None], v

    def output_projection(self, kind: SiteKind) -> tuple[Tensor, Tensor]:
        """The matrix [inner, width] and bias that end the attention or the MLP."""
        layer = self.proj if kind == "attention" else self.fc2
        return layer.weight.T, layer.bias

    def forward(
        self, x: Tensor, attention: Site, mlp: Site, tap: Tap | None, edit: Edit
    ) -> tuple[Tensor, Tensor]:
        """Stream in → stream out, and the values (for MGA-CLAP's value path)."""
        points = tap.points if tap is not None else frozenset[str]()
        if tap is not None and "stream" in points:
            tap("stream", attention, x)
        raw, maps, values = self.attend(self.norm1(x), "maps" in points)
        change = edit.get((attention, "raw"))
        if change is not None or "raw" in points:
            heads = raw.unflatten(-1, (self.n_heads, self.d_head))
            if change is not None:
                heads = change(heads)
                raw = heads.flatten(-2)
            if tap is not None and "raw" in points:
                tap("raw", attention, heads)
        if tap is not None and maps is not None:
            tap("maps", attention, maps)
        x = self._add(x, attention, self.proj, raw, tap, edit)
        hidden = linear(self.fc1, self.norm2(x), gelu=True)
        return self._add(x, mlp, self.fc2, hidden, tap, edit), values

    @staticmethod
    def _add(
        x: Tensor, site: Site, layer: nn.Linear, inner: Tensor, tap: Tap | None, edit: Edit
    ) -> Tensor:
        """The stream with what a site adds; that is formed on its own only if somebody asks."""
        change = edit.get((site, "out"))
        tapped = tap is not None and "out" in tap.points
        if change is None and not tapped:
            return linear(layer, inner, add=x)
        out = linear(layer, inner)
        if change is not None:
            out = change(out)
        if tap is not None and tapped:
            tap("out", site, out)
        return x + out


def scaled_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, maps: bool
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ / √d + bias) v; fused, unless the probabilities are wanted too."""
    if not maps:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias), None
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + bias
    probabilities = scores.softmax(-1)
    return probabilities @ v, probabilities


def normalise(norm: nn.LayerNorm, x: Tensor, stage: int, tap: Tap | None) -> Tensor:
    """LayerNorm; a tap on `scale` also receives 1/σ of every token."""
    if tap is None or "scale" not in tap.points:
        return norm(x)
    out, _, scale = torch.native_layer_norm(x, [x.shape[-1]], norm.weight, norm.bias, norm.eps)
    tap("scale", stage, scale[..., 0])
    return out
