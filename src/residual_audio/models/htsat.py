"""HTS-AT, one implementation for every checkpoint family and every size.

Tokens are kept in Z-order (Morton order) from the patch embedding on. In that order each aligned
window of every stage is contiguous and the four tokens that merge are neighbours, in the slot
order (0,0), (1,0), (0,1), (1,1) of patch merging. So unshifted blocks and merging move no data;
only shifted blocks gather, by one precomputed permutation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError, ModelError
from residual_audio.models.block import Block, normalise, scaled_attention
from residual_audio.models.direct_path import MergedTokens
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
from residual_audio.models.frames import resize_frames
from residual_audio.models.frozen_attention import FrozenAttention, Windows, can_be_frozen
from residual_audio.models.fusion import FusionPatches
from residual_audio.models.linear import linear
from residual_audio.models.swin_geometry import relative_index, shifted_windows, z_order
from residual_audio.types import Site

OUTER_EPS = 1e-5


@dataclass(frozen=True)
class HTSATConfig:
    """Everything that shapes the encoder; the defaults are HTS-AT tiny."""

    embed_dim: int = 96
    depths: tuple[int, ...] = (2, 2, 6, 2)
    n_heads: tuple[int, ...] = (4, 8, 16, 32)
    window: int = 8
    spec_size: int = 256
    patch: int = 4
    n_mels: int = 64
    mlp_ratio: float = 4.0
    norm_eps: float = 1e-5
    """Of the norms in blocks; the others have `OUTER_EPS` in every release."""
    fusion: bool = False
    """LAION's 4-channel input for long clips (`aff_2d`)."""
    value_path: bool = False
    """MGA-CLAP: the last block also passes its values on without attention."""
    pool: str = "mean"
    """How final tokens become the latent: `mean`, or `max` (MGA-CLAP)."""
    widths: tuple[int, ...] = ()
    """Width of each stage; as a rule each is twice the one before, beginning with `embed_dim`."""

    def __post_init__(self) -> None:
        stages = len(self.depths)
        if not (1 <= stages <= 16 and sum(self.depths) <= 1000 and len(self.n_heads) == stages):
            raise InputError(f"HTS-AT of {stages} stages and {sum(self.depths)} blocks: not built")
        if not (1 <= self.patch <= self.spec_size <= 4096 and 1 <= self.window <= 64):
            raise InputError(
                f"HTS-AT with spec_size {self.spec_size}, patch {self.patch} and window "
                f"{self.window}: not built"
            )
        grid = self.spec_size // self.patch
        if grid & (grid - 1) or self.window & (self.window - 1) or grid >> (stages - 1) < 1:
            raise InputError(
                f"HTS-AT needs a token grid and a window that are powers of two; "
                f"spec_size {self.spec_size} / patch {self.patch} = {grid}, window {self.window}"
            )
        if self.widths:
            self._check_widths()
        if self.pool not in ("mean", "max") or not 0 <= self.norm_eps < 1:
            raise InputError(
                f"HTS-AT with pool {self.pool!r} and norm_eps {self.norm_eps!r}: not built"
            )
        if self.spec_size % self.n_mels:
            raise InputError(
                f"spec_size {self.spec_size} is not a multiple of n_mels {self.n_mels}"
            )

    def _check_widths(self) -> None:
        if len(self.widths) != len(self.depths) or self.widths[0] != self.embed_dim:
            raise InputError(
                f"HTS-AT with widths {list(self.widths)}: give one for each of the "
                f"{len(self.depths)} stages, the first of them embed_dim ({self.embed_dim})"
            )
        for width, heads in zip(self.widths, self.n_heads, strict=True):
            if width < 1 or width % heads:
                raise InputError(f"HTS-AT: {heads} heads do not share a width of {width} evenly")

    @property
    def n_frames(self) -> int:
        """Frames the log-mel is stretched to: the folded image holds spec_size² values."""
        return self.spec_size * (self.spec_size // self.n_mels)

    @property
    def latent(self) -> int:
        return self.width(len(self.depths) - 1)

    def grid(self, stage: int) -> int:
        """Side of the token grid of a stage."""
        return self.spec_size // self.patch >> stage

    def width(self, stage: int) -> int:
        return self.widths[stage] if self.widths else self.embed_dim << stage

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> HTSATConfig:
        lists = ("depths", "n_heads", "widths")
        return cls(**values | {key: tuple(values[key]) for key in lists if key in values})


class SwinBlock(Block):
    """One Swin block: attention inside windows, shifted in every second block."""

    bias: Tensor
    gather: Tensor
    scatter: Tensor
    mask: Tensor
    rel_index: Tensor

    def __init__(self, config: HTSATConfig, stage: int, index: int) -> None:
        width = config.width(stage)
        side = config.grid(stage)
        hidden = int(width * config.mlp_ratio)
        super().__init__(width, config.n_heads[stage], hidden, config.norm_eps)
        self.window = min(config.window, side)
        shift = config.window // 2 if index % 2 and side > config.window else 0
        self.bias_table = nn.Parameter(torch.zeros((2 * self.window - 1) ** 2, self.n_heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        self.register_buffer("rel_index", relative_index(self.window), persistent=False)
        self.shifted = shift > 0
        if self.shifted:
            gather, mask = shifted_windows(side, self.window, shift)
            self.register_buffer("gather", gather, persistent=False)
            self.register_buffer("scatter", torch.argsort(gather), persistent=False)
            self.register_buffer("mask", mask, persistent=False)
        self._bias_cache: tuple[tuple[Any, ...], Tensor, Tensor] | None = None

    def attention_bias(self, n_clips: int) -> Tensor:
        """Relative position bias plus shift mask, [1 or clip·window, head, query, key]."""
        table = self.bias_table
        version = 0 if table.is_inference() else table._version  # such tensors have none
        key = (version, table.data_ptr(), table.device, table.dtype)
        # a traced graph holds for any number of clips: nothing of it is kept, nor taken from here
        tracked = torch.jit.is_tracing() or (torch.is_grad_enabled() and table.requires_grad)
        kept = None if tracked else self._bias_cache
        n_windows = n_clips * len(self.mask) if self.shifted else 1
        if kept is not None and kept[0] == key and len(kept[1]) >= n_windows:
            return kept[1][:n_windows]  # parts of a batch differ in size
        # A cache filled in inference mode must still serve a later pass with gradients.
        with torch.inference_mode(False):
            bias = table[self.rel_index].permute(2, 0, 1)[None]  # 1 head query key
            if self.shifted:
                bias = bias + self.mask[:, None].to(bias.dtype)
                bias = bias.repeat(n_clips, 1, 1, 1)
            if not tracked:
                bias = bias.detach()
                # with the table's own memory, so that no other table can come to lie there
                self._bias_cache = (key, bias, table.detach())
        return bias

    def attend(self, x: Tensor, maps: bool) -> tuple[Tensor, Tensor | None]:
        clip, token, _ = x.shape
        m, bias = self.window * self.window, self.attention_bias(clip)
        if not maps and can_be_frozen(self.qkv, self.n_heads, x, bias):
            windows = Windows(m, *((self.gather, self.scatter) if self.shifted else ()))
            return FrozenAttention.apply(x, self.qkv, self.n_heads, bias, windows), None  # type: ignore[no-untyped-call]
        if self.shifted:
            x = x.index_select(1, self.gather)
        qkv = linear(self.qkv, x).view(clip * token // m, m, 3, self.n_heads, self.d_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each: clip·window head token d_head
        raw, probabilities = scaled_attention(q, k, v, bias, maps)
        if probabilities is not None:
            probabilities = probabilities.view(clip, -1, *probabilities.shape[1:])
        raw = raw.transpose(1, 2).reshape(clip, token, -1)
        if self.shifted:
            raw = raw.index_select(1, self.scatter)
        return raw, probabilities

    @torch.no_grad()
    def keep_heads(self, heads: Sequence[int], bias: Tensor) -> None:
        self.bias_table = nn.Parameter(self.bias_table[:, list(heads)].clone())
        self._bias_cache = None
        super().keep_heads(heads, bias)

    def value_branch(self, x: Tensor) -> Tensor:
        """MGA-CLAP's value path of this block: no attention, no MLP."""
        if self.shifted:
            raise ModelError("the value path is only defined where the last block is not shifted")
        values = self.qkv(self.norm1(x))[..., 2 * x.shape[-1] :]
        v = x + self.proj(values)
        return v + self.norm2(v)


class Merge(nn.Module):
    """2×2 neighbours → one token of the next stage's width."""

    def __init__(self, width: int, wider: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width, eps=eps)
        self.reduction = nn.Linear(4 * width, wider, bias=False)


class HTSAT(Encoder):
    """Log-mel [clip, frame, mel] → latent [clip, latent]."""

    kind = "htsat"
    any_length = False
    config: HTSATConfig
    order: Tensor
    raster: Tensor

    def __init__(self, config: HTSATConfig) -> None:
        super().__init__()
        self.config = config
        self.mel_norm = nn.BatchNorm1d(config.n_mels)
        self.patch = nn.Conv2d(1, config.embed_dim, config.patch, config.patch)
        self.fusion = FusionPatches(config.embed_dim, config.patch) if config.fusion else None
        self.patch_norm = nn.LayerNorm(config.embed_dim, eps=OUTER_EPS)
        self.stages = nn.ModuleList(
            nn.ModuleList(SwinBlock(config, stage, i) for i in range(depth))
            for stage, depth in enumerate(config.depths)
        )
        self.merges = nn.ModuleList(
            Merge(config.width(stage), config.width(stage + 1), OUTER_EPS)
            for stage in range(len(config.depths) - 1)
        )
        self.norm = nn.LayerNorm(config.latent, eps=OUTER_EPS)
        self.register_buffer("order", z_order(config.grid(0)), persistent=False)
        last = z_order(config.grid(len(config.depths) - 1))
        self.register_buffer("raster", torch.argsort(last), persistent=False)
        self._sites = tuple(
            Site(
                stage,
                block,
                kind,  # type: ignore[arg-type]
                config.n_heads[stage] if kind == "attention" else 0,
                config.width(stage) // config.n_heads[stage] if kind == "attention" else 0,
                config.width(stage),
            )
            for stage, depth in enumerate(config.depths)
            for block in range(depth)
            for kind in ("attention", "mlp")
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        return self._sites

    @property
    def blocks(self) -> list[SwinBlock]:
        return [
            cast(SwinBlock, block) for stage in self.stages for block in cast(nn.ModuleList, stage)
        ]

    def block(self, site: Site) -> SwinBlock:
        return cast(SwinBlock, cast(nn.ModuleList, self.stages[site.stage])[site.block])

    def token_grid(self, stage: int) -> Tensor:
        """[token, 2] row (folded frequency) and column (time) of each token of a stage."""
        side = self.config.grid(stage)
        order = z_order(side)
        return torch.stack([order // side, order % side], dim=1)

    def time_frequency(self, stage: int, n_tokens: int) -> Tensor:
        """[token, 2] true time and frequency step of each token, the fold undone."""
        side = self.config.grid(stage)
        fold = self.config.spec_size // self.config.n_mels
        if side < fold:
            raise ModelError(f"a token of stage {stage} spans several segments: it has no one time")
        height = side // fold  # token rows of one segment
        row, column = self.token_grid(stage).unbind(1)
        return torch.stack([row // height * side + column, row % height], dim=1)

    def token_places(self, encoded: Encoded) -> Tensor:
        """Final tokens are handed out in raster order."""
        last = len(self.config.depths) - 1
        return self.time_frequency(last, encoded.tokens.shape[1])[self.raster.cpu()]

    def window_grid(self, stage: int, n_tokens: int) -> Tensor:
        """[token, 2] column (time) and row (frequency) of each token inside its window."""
        side = min(self.config.window, self.config.grid(stage))
        order = z_order(side)
        return torch.stack([order % side, order // side], dim=1)

    def direct_path(self) -> MergedTokens:
        """How each token of each stage reaches the pooled latent, norm statistics frozen."""
        if self.config.value_path or self.config.pool != "mean":
            raise ModelError(
                "the direct path needs a latent that is the mean of the final tokens; "
                "this encoder (MGA-CLAP's value path) has none"
            )
        merges = [cast(Merge, merge) for merge in self.merges]
        return MergedTokens([(m.norm, m.reduction.weight.T) for m in merges], self.norm)

    def image(self, features: Tensor) -> Tensor:
        """Log-mel [n, frame, mel] → folded image [n, 1, spec, spec] (frequency up, time across)."""
        x = self.mel_norm(features.flatten(0, 1)).view_as(features)
        x = resize_frames(x, self.config.n_frames)
        n, frame, mel = x.shape
        fold = self.config.spec_size // mel
        x = x.view(n, fold, frame // fold, mel).transpose(2, 3)  # n segment mel frame
        return x.reshape(n, 1, fold * mel, frame // fold)

    def embed(self, features: Features) -> Tensor:
        """Patch tokens in Z-order, normed: [clip, token, embed_dim]."""
        if isinstance(features, tuple):
            if self.fusion is None:
                raise InputError("this encoder has no fusion: give it one log-mel a clip")
            mels, longer = features
            images = self.image(mels.flatten(0, 1)).unflatten(0, mels.shape[:2])
            x = self.fusion(self.patch, images[:, :, 0], longer)
            x = x.flatten(2).transpose(1, 2).index_select(1, self.order)
        else:
            x = self._patches(self.image(features))
        return self.patch_norm(x)

    def _patches(self, image: Tensor) -> Tensor:
        """The patch convolution as a product: put in order before it, there is less to move."""
        side, patch = self.config.grid(0), self.config.patch
        x = image.view(-1, side, patch, side, patch).transpose(2, 3)  # clip row column y x
        x = x.reshape(-1, side * side, patch * patch).index_select(1, self.order)
        return nn.functional.linear(x, self.patch.weight.flatten(1), self.patch.bias)

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
        x, first = state.tokens, state.block
        index = 0
        last_stage = len(self.stages) - 1
        for stage, blocks in enumerate(self.stages):
            for block in cast(nn.ModuleList, blocks):
                if index >= first:
                    attention, mlp = self._sites[2 * index], self._sites[2 * index + 1]
                    entering = x
                    x = block(x, attention, mlp, tap, edit)
                index += 1
            if index <= first:
                continue  # the saved state is already past this merge
            if tap is not None and "end" in tap.points:
                tap("end", stage, x)
            if stage < last_stage:
                merge = cast(Merge, self.merges[stage])
                x = x.reshape(x.shape[0], x.shape[1] // 4, 4 * x.shape[2])
                x = linear(merge.reduction, normalise(merge.norm, x, stage, tap))
        tokens = normalise(self.norm, x, last_stage, tap)
        values = None
        if self.config.value_path:
            values = self.norm(self.blocks[-1].value_branch(entering)).index_select(1, self.raster)
        latent = tokens.mean(1) if self.config.pool == "mean" else tokens.amax(1)
        return Encoded(latent, tokens.index_select(1, self.raster), values)

    def forward(self, features: Features) -> Tensor:
        return self.encode(features).latent
