"""Pre-norm blocks as language models have them, hearing a clip of any length as one row of frames:
RMS norms, rotary positions, normed queries and keys, a gated MLP (PE-Audio)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.errors import InputError
from residual_audio.models.block import TOKENS_AT_ONCE, Block, joined, scaled_attention
from residual_audio.models.encoder import (
    Edit,
    Encoded,
    Encoder,
    Features,
    State,
    Tap,
    check_edit,
    entrance,
)
from residual_audio.models.linear import linear
from residual_audio.models.vit_tokens import PooledTokens, TokenLayout
from residual_audio.types import Site

LONGEST = 1 << 24
"""More frames than any clip has: a stream is never taken for two."""


@dataclass(frozen=True)
class RotaryConfig:
    """Everything that shapes the encoder."""

    width: int
    depth: int
    n_heads: int
    d_head: int
    hidden: int
    """Width inside the MLPs."""
    n_features: int
    """Numbers a frame that the front-end gives."""
    norm_eps: float
    theta: float
    """Base of the rotary positions."""

    def __post_init__(self) -> None:
        if self.d_head % 2:
            raise InputError(f"rotary positions turn pairs: heads of {self.d_head} have one over")

    @property
    def latent(self) -> int:
        return self.width

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


class RotaryBlock(Block):
    """Queries and keys at unit RMS, turned by their place; the MLP is gated."""

    def __init__(self, config: RotaryConfig) -> None:
        nn.Module.__init__(self)
        width, inner = config.width, config.n_heads * config.d_head
        self.n_heads = config.n_heads
        self.d_head = config.d_head
        self.theta = config.theta
        self.norm1 = nn.RMSNorm(width, eps=config.norm_eps)
        self.qkv = nn.Linear(width, 3 * inner)
        self.q_norm = nn.RMSNorm(config.d_head, eps=config.norm_eps)
        self.k_norm = nn.RMSNorm(config.d_head, eps=config.norm_eps)
        self.proj = nn.Linear(inner, width)
        self.norm2 = nn.RMSNorm(width, eps=config.norm_eps)
        self.fc1 = nn.Linear(width, 2 * config.hidden)  # gate, then what it lets through
        self.fc2 = nn.Linear(config.hidden, width)

    def attend(self, x: Tensor, maps: bool) -> tuple[Tensor, Tensor | None]:
        qkv = linear(self.qkv, x).unflatten(-1, (3, self.n_heads, self.d_head))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each: clip head token d_head
        turn = angles(q.shape[2], self.d_head, self.theta, q.device)
        q, k = turned(self.q_norm(q), turn), turned(self.k_norm(k), turn)
        raw, probabilities = scaled_attention(q, k, v, None, maps)
        raw = raw.transpose(1, 2).flatten(2)
        return raw, None if probabilities is None else probabilities[:, None]

    def _mlp(self, x: Tensor, added: bool) -> Tensor:
        parts = []
        for part in x.flatten(0, 1).split(TOKENS_AT_ONCE):
            gate, through = linear(self.fc1, self.norm2(part)).chunk(2, -1)
            parts.append(linear(self.fc2, F.silu(gate) * through, add=part if added else None))
        return joined(parts).view_as(x)


def angles(n_tokens: int, d_head: int, theta: float, device: torch.device) -> Tensor:
    """[token, d_head / 2]: t · θ^(−2i/d)."""
    step = torch.arange(0, d_head, 2, dtype=torch.float32, device=device) / d_head
    speed = 1.0 / theta**step
    return torch.arange(n_tokens, dtype=torch.float32, device=device)[:, None] * speed


def turned(x: Tensor, angle: Tensor) -> Tensor:
    """Neighbours (x₀, x₁), (x₂, x₃), … of [clip, head, token, d_head], each pair by its angle."""
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)


class FrameStem(nn.Module):
    """Frames [clip, frame, n_features], a class token before them → [clip, 1 + frame, width].

    Two convolutions over time are added, each after a norm over the whole clip and SiLU.
    """

    def __init__(self, config: RotaryConfig) -> None:
        super().__init__()
        width = config.width
        self.data_proj = nn.Linear(config.n_features, width)
        self.special = nn.Parameter(torch.zeros(1, 1, width))
        self.norm1 = nn.GroupNorm(1, width)
        self.conv1 = nn.Conv1d(width, width, 3, padding=1)
        self.norm2 = nn.GroupNorm(1, width)
        self.conv2 = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        x = torch.cat([self.special.expand(len(features), -1, -1), self.data_proj(features)], 1)
        added = self.conv1(F.silu(self.norm1(x.transpose(1, 2))))
        return x + self.conv2(F.silu(self.norm2(added))).transpose(1, 2)


class Rotary(Encoder):
    """Frames [clip, frame, n_features] → the class token after the last norm and matrix."""

    kind = "rotary"
    config: RotaryConfig

    def __init__(self, config: RotaryConfig) -> None:
        super().__init__()
        self.config = config
        self.layout = TokenLayout(1, 1, LONGEST)
        self.stem = FrameStem(config)
        self.blocks = nn.ModuleList(RotaryBlock(config) for _ in range(config.depth))
        self.norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.output = nn.Linear(config.width, config.width, bias=False)
        self._sites = tuple(
            site
            for block in range(config.depth)
            for site in (
                Site(0, block, "attention", config.n_heads, config.d_head, config.width),
                Site(0, block, "mlp", 0, 0, config.width),
            )
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._sites

    @property
    def any_length(self) -> bool:
        """A clip of any length is read whole."""
        return True

    def block(self, site: Site) -> RotaryBlock:
        return cast(RotaryBlock, self.blocks[site.block])

    def time_frequency(self, stage: int, n_tokens: int) -> Tensor:
        """[token, 2] time step of each token, at frequency 0; −1 for the class token."""
        return self.layout.places(n_tokens)

    def window_grid(self, stage: int, n_tokens: int) -> Tensor:
        """The same: attention spans the clip."""
        return self.layout.places(n_tokens)

    def direct_path(self) -> PooledTokens:
        """How the class token reaches the latent, its RMS frozen: diag(γ) Wᵀ, no constant."""
        step = self.norm.weight[:, None] * self.output.weight.T
        return PooledTokens(self.layout, "special", step, torch.zeros_like(self.norm.weight))

    def embed(self, features: Features) -> Tensor:
        """[clip, 1 + frame, width]"""
        if isinstance(features, tuple):
            raise InputError("this encoder has no fusion: give it one row of frames a clip")
        if features.shape[-1] != self.config.n_features or not features.shape[1]:
            raise InputError(
                f"expected {self.config.n_features} numbers a frame, got {tuple(features.shape)}"
            )
        return self.stem(features)

    def encode(
        self,
        features: Features | None,
        *,
        tap: Tap | None = None,
        edit: Edit | None = None,
        start: State | None = None,
    ) -> Encoded:
        edit = edit or {}
        check_edit(edit, self.sites)
        state = entrance(self.embed, features, start)
        x = state.tokens
        for index in range(state.block, self.config.depth):
            block = cast(RotaryBlock, self.blocks[index])
            x = block(x, self._sites[2 * index], self._sites[2 * index + 1], tap, edit)
        if tap is not None and "end" in tap.points:
            tap("end", 0, x)
        if tap is not None and "scale" in tap.points:
            tap("scale", 0, (x.square().mean(-1) + self.config.norm_eps).rsqrt())
        x = linear(self.output, self.norm(x))
        return Encoded(x[:, 0], x[:, 1:], special=x[:, :1])

    def forward(self, features: Features) -> Tensor:
        return self.encode(features).latent
