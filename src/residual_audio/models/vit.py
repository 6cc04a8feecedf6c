"""One ViT for every encoder that is a plain stack of pre-norm blocks: M2D-CLAP, AST, Whisper.

With `chunks`, a clip of any length is read: it is cut into pieces of `n_frames` frames, each with
its own special tokens and seen by itself; the tokens of all pieces form one stream, so taps, edits
and saved states need not know of pieces.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.errors import InputError
from residual_audio.models.block import Block, normalise, scaled_attention
from residual_audio.models.direct_path import affine_of_norm
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
from residual_audio.models.vit_tokens import (
    Pool,
    PooledTokens,
    TokenLayout,
    sounding_positions,
)
from residual_audio.types import Site


@dataclass(frozen=True)
class ViTConfig:
    """Everything that shapes the encoder."""

    width: int
    depth: int
    n_heads: int
    hidden: int
    """Width inside the MLPs."""
    n_mels: int
    n_frames: int
    """Frames of the log-mel that the position table is made for."""
    norm_eps: float
    stem: Literal["patch", "conv"] = "patch"
    """`patch`: one convolution over time and frequency. `conv`: two over time (Whisper)."""
    patch: tuple[int, int] = (16, 16)
    """Mels and frames of a patch."""
    stride: tuple[int, int] = (16, 16)
    n_special: int = 0
    """Learned tokens before the patches: CLS (M2D), CLS and distillation (AST)."""
    pool: Pool = "patches"
    chunks: bool = False
    """Read clips of any length; otherwise a clip has exactly `n_frames` frames."""
    halve: bool = False
    """Neighbouring tokens are averaged before the final norm (Whisper inside Qwen2-Audio)."""

    def __post_init__(self) -> None:
        if self.width % self.n_heads:
            raise InputError(f"ViT: width {self.width} is not a multiple of {self.n_heads} heads")
        if self.n_mels < self.patch[0] or self.n_frames < self.patch[1]:
            raise InputError(
                f"ViT: an input of {self.n_mels} × {self.n_frames} is smaller than a patch of "
                f"{self.patch[0]} × {self.patch[1]}"
            )
        if self.pool == "special" and not self.n_special:
            raise InputError("ViT: no special tokens to pool over")
        if self.pool == "sounding" and (self.stem != "conv" or self.n_special or self.chunks):
            raise InputError(
                "ViT: only positions in time (Whisper's) can be pooled where they sound"
            )
        if self.halve and (self.stem != "conv" or self.layout.full % 2 or self.n_special):
            raise InputError("ViT: only an even number of positions in time can be halved")

    @property
    def layout(self) -> TokenLayout:
        if self.stem == "conv":
            return TokenLayout(self.n_special, 1, (self.n_frames + 1) // 2)
        rows = (self.n_mels - self.patch[0]) // self.stride[0] + 1
        return TokenLayout(self.n_special, rows, self.columns(self.n_frames))

    def columns(self, n_frames: int) -> int:
        """Patches along time."""
        return (n_frames - self.patch[1]) // self.stride[1] + 1

    @property
    def latent(self) -> int:
        return self.width * (self.layout.rows if self.pool == "stack" else 1)

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ViTConfig:
        pairs = {"patch": tuple(values["patch"]), "stride": tuple(values["stride"])}
        return cls(**{**values, **pairs})


class PatchStem(nn.Module):
    """Log-mel [clip, frame, mel] → patches [clip, row · column, width], frequency-major."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, config.width, config.patch, config.stride)

    def forward(self, features: Tensor) -> Tensor:
        return self.conv(features.transpose(1, 2)[:, None]).flatten(2).transpose(1, 2)


class ConvStem(nn.Module):
    """Whisper's: two convolutions over time, the second halves the frames."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(config.n_mels, config.width, 3, padding=1)
        self.conv2 = nn.Conv1d(config.width, config.width, 3, stride=2, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        x = F.gelu(self.conv1(features.transpose(1, 2)))
        return F.gelu(self.conv2(x)).transpose(1, 2)


class ViTBlock(Block):
    """Every token sees every token of its chunk."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config.width, config.n_heads, config.hidden, config.norm_eps)
        self.layout = config.layout

    def attend(self, x: Tensor, maps: bool) -> tuple[Tensor, Tensor | None]:
        if x.shape[1] <= self.layout.full:
            return super().attend(x, maps)
        clip, token, _ = x.shape
        qkv = linear(self.qkv, x).unflatten(-1, (3, self.n_heads, self.d_head))
        whole = token - token % self.layout.full
        raw = []
        found: list[Tensor] = []
        for part in (qkv[:, :whole].unflatten(1, (-1, self.layout.full)), qkv[:, None, whole:]):
            if part.shape[2]:
                q, k, v = part.permute(3, 0, 1, 4, 2, 5)  # each: clip chunk head token d_head
                out, probabilities = scaled_attention(q, k, v, None, maps)
                raw.append(out.transpose(2, 3).reshape(clip, -1, self.n_heads * self.d_head))
                if probabilities is not None:
                    found += probabilities.unbind(1)
        return torch.cat(raw, 1), block_diagonal(found)[:, None] if maps else None


def block_diagonal(maps: list[Tensor]) -> Tensor:
    """Maps [clip, head, query, key] of each chunk → one of all tokens: nothing crosses chunks."""
    clip, head = maps[0].shape[:2]
    token = sum(part.shape[-1] for part in maps)
    whole = maps[0].new_zeros(clip, head, token, token)
    start = 0
    for part in maps:
        here = slice(start, start + part.shape[-1])
        whole[:, :, here, here] = part
        start = here.stop
    return whole


class ViT(Encoder):
    """Log-mel [clip, frame, mel] → latent [clip, latent]."""

    kind = "vit"
    config: ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.layout = config.layout
        self.stem = PatchStem(config) if config.stem == "patch" else ConvStem(config)
        special = torch.zeros(config.n_special, config.width)
        self.special = nn.Parameter(special) if config.n_special else None
        self.positions = nn.Parameter(torch.zeros(self.layout.full, config.width))
        self.blocks = nn.ModuleList(ViTBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        d_head = config.width // config.n_heads
        self._sites = tuple(
            site
            for block in range(config.depth)
            for site in (
                Site(0, block, "attention", config.n_heads, d_head, config.width),
                Site(0, block, "mlp", 0, 0, config.width),
            )
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._sites

    @property
    def any_length(self) -> bool:
        """True where a long clip is read whole, in chunks."""
        return self.config.chunks

    def block(self, site: Site) -> ViTBlock:
        return cast(ViTBlock, self.blocks[site.block])

    def time_frequency(self, stage: int, n_tokens: int) -> Tensor:
        """[token, 2] time and frequency step of each token; −1 for a special token."""
        return self.layout.places(n_tokens)

    def window_grid(self, stage: int, n_tokens: int) -> Tensor:
        """The same: attention spans the clip, there are no smaller windows."""
        return self.layout.places(n_tokens)

    def direct_path(self) -> PooledTokens:
        """How each token reaches the pooled latent, norm statistics frozen."""
        step = affine_of_norm(self.norm)
        return PooledTokens(self.layout, self.config.pool, step, self.norm.bias)

    def embed(self, features: Features) -> Tensor:
        """Special and patch tokens with their positions: [clip, token, width]."""
        if isinstance(features, tuple):
            raise InputError("this encoder has no fusion: give it one log-mel a clip")
        config = self.config
        _, n_frames, n_mels = features.shape
        if n_mels != config.n_mels or not n_frames:
            raise InputError(f"expected {config.n_mels} mels, got {tuple(features.shape)}")
        if not config.chunks:
            if n_frames != config.n_frames:
                raise InputError(f"expected {config.n_frames} frames a clip, got {n_frames}")
            return self._embed_chunk(features)
        chunks = [self._embed_chunk(c) for c in features.split(config.n_frames, dim=1)]
        return torch.cat(chunks, 1) if len(chunks) > 1 else chunks[0]

    def _embed_chunk(self, features: Tensor) -> Tensor:
        config = self.config
        if config.chunks and features.shape[1] < config.n_frames:
            # Features are normalised by now, so the frames that fill a patch are of average level.
            missing = -features.shape[1] % config.patch[1]
            features = F.pad(features, (0, 0, 0, missing))[:, : config.n_frames]
        x = self.stem(features)
        special, patches = self.positions.split(
            [config.n_special, self.layout.full - config.n_special]
        )
        columns = x.shape[1] // self.layout.rows
        if columns < self.layout.columns:
            patches = patches.unflatten(0, (self.layout.rows, -1))[:, :columns].flatten(0, 1)
        x = x + patches
        if self.special is None:
            return x
        return torch.cat([(self.special + special).expand(x.shape[0], -1, -1), x], 1)

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
        x, heard = state.tokens, self._heard(features, state, tap)
        self.layout.chunks(x.shape[1])  # a stream of another model is refused here
        for index in range(state.block, self.config.depth):
            block = cast(ViTBlock, self.blocks[index])
            x = block(x, self._sites[2 * index], self._sites[2 * index + 1], tap, edit)
        if tap is not None and "end" in tap.points:
            tap("end", 0, x)
        x = self._final_norm(x, tap, heard)
        if heard is None:
            latent = self.layout.pooled(x, self.config.pool).mean(1).flatten(1)
        else:
            latent = (x * heard[..., None]).sum(1) / heard.sum(1, keepdim=True)
        special = self.layout.special(x) if self.config.n_special else None
        return Encoded(latent, self.layout.patches(x), special=special)

    def _heard(self, features: Features | None, state: State, tap: Tap | None) -> Tensor | None:
        """[clip, final token] 1 where something is heard; None where that does not matter."""
        if self.config.pool != "sounding":
            return None
        heard = state.heard
        if heard is None:
            if not isinstance(features, Tensor):
                raise InputError("this encoder pools where it hears something: give it features")
            heard = sounding_positions(features)
        if self.config.halve:
            heard = heard.unflatten(1, (-1, 2)).any(2)
        if tap is not None and "heard" in tap.points:
            tap("heard", 0, heard.repeat_interleave(2, 1) if self.config.halve else heard)
        return heard.to(state.tokens.dtype)

    def _final_norm(self, x: Tensor, tap: Tap | None, heard: Tensor | None) -> Tensor:
        if self.config.halve:
            x = x.unflatten(1, (-1, 2)).mean(2)
        n_averaged = 2 if self.config.halve else 1
        share = None if heard is None else heard * heard.shape[1] / heard.sum(1, keepdim=True)
        return normalise(self.norm, x, 0, tap, n_averaged, share)

    def forward(self, features: Features) -> Tensor:
        return self.encode(features).latent
