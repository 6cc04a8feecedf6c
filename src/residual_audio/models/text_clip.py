"""CLIP's text tower as open_clip builds it: a pre-norm transformer, one token of it projected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.errors import InputError, ModelError
from residual_audio.models.text import TokenizerSpec, load_tokenizer, tokenize_texts

Activation = Literal["gelu", "gelu-tanh", "quick-gelu"]
TokenPool = Literal["argmax", "eos", "first", "last"]
"""Which token is the text: the largest id (CLIP's end mark), the id `eos_id`, the first or last."""


@dataclass(frozen=True)
class ClipTextConfig:
    """Everything that shapes the tower."""

    vocabulary: int
    context: int
    width: int
    depth: int
    n_heads: int
    hidden: int
    d_out: int
    """Width of the joint space; 0 where there is no projection."""
    activation: Activation = "gelu"
    norm_eps: float = 1e-5
    causal: bool = True
    pool: TokenPool = "argmax"
    pad_id: int = 0
    eos_id: int = 2
    pad_mask: bool = False
    """Padding is not attended to (only where there is no causal mask)."""
    class_token: bool = False
    """A learned token after the others, which then is the text (CoCa)."""
    class_mask_last: bool = False
    """The class token's place in the mask; existing weights were trained with it first."""
    layer_scale: bool = False

    def __post_init__(self) -> None:
        if self.width % self.n_heads:
            raise InputError(
                f"text tower: width {self.width} is not a multiple of {self.n_heads} heads"
            )
        if self.activation not in get_args(Activation) or self.pool not in get_args(TokenPool):
            raise InputError(f"text tower: no '{self.activation}' or no pooling '{self.pool}'")


class ClipBlock(nn.Module):
    """Self-attention and MLP, each added to the stream."""

    def __init__(self, config: ClipTextConfig) -> None:
        super().__init__()
        width = config.width
        self.n_heads, self.activation = config.n_heads, config.activation
        self.norm1 = nn.LayerNorm(width, eps=config.norm_eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, eps=config.norm_eps)
        self.fc1 = nn.Linear(width, config.hidden)
        self.fc2 = nn.Linear(config.hidden, width)
        scales = [nn.Parameter(torch.ones(width)) if config.layer_scale else None for _ in range(2)]
        self.scale1, self.scale2 = scales

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each: text head token d_head
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out = self.proj(out.transpose(1, 2).flatten(2))
        x = x + (out if self.scale1 is None else out * self.scale1)
        out = self.fc2(self._act(self.fc1(self.norm2(x))))
        return x + (out if self.scale2 is None else out * self.scale2)

    def _act(self, x: Tensor) -> Tensor:
        if self.activation == "quick-gelu":
            return x * torch.sigmoid(1.702 * x)
        return F.gelu(x, approximate="tanh" if self.activation == "gelu-tanh" else "none")


class ClipText(nn.Module):
    """Texts → joint space, not normalised."""

    kind = "clip-text"

    def __init__(self, config: ClipTextConfig, tokenizer: TokenizerSpec) -> None:
        super().__init__()
        self.settings = config
        self.tokenizer_spec = tokenizer
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.zeros(config.context, config.width))
        self.class_token = nn.Parameter(torch.zeros(config.width)) if config.class_token else None
        self.blocks = nn.ModuleList(ClipBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.head = nn.Linear(config.width, config.d_out) if config.d_out else nn.Identity()
        self._tokenizer: Any = None

    @property
    def config(self) -> dict[str, Any]:
        return {"settings": asdict(self.settings), "tokenizer": asdict(self.tokenizer_spec)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], folder: Path) -> ClipText:
        spec = dict(config["tokenizer"])
        if (folder / "tokenizer.json").is_file():
            spec["source"] = str(folder)
        return cls(ClipTextConfig(**config["settings"]), TokenizerSpec(**spec))

    def pooled(self, input_ids: Tensor) -> Tensor:
        """Token ids → [text, width], the normed token that stands for the text."""
        x = self.tokens(input_ids)
        if self.class_token is not None:
            x = torch.cat([x, self.class_token.expand(len(x), 1, -1)], 1)
        x = x + self.positions[: x.shape[1]]
        mask = self._mask(input_ids, x)
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x[torch.arange(len(x), device=x.device), self._place(input_ids)])

    def _place(self, input_ids: Tensor) -> Tensor:
        n, length = input_ids.shape
        if self.class_token is not None:
            return torch.full((n,), length, device=input_ids.device)
        if self.settings.pool == "argmax":
            return input_ids.argmax(-1)
        if self.settings.pool == "eos":
            return (input_ids == self.settings.eos_id).int().argmax(-1)
        last = length - 1 if self.settings.pool == "last" else 0
        return torch.full((n,), last, device=input_ids.device)

    def _mask(self, input_ids: Tensor, x: Tensor) -> Tensor | None:
        """[text or 1, 1, token, token] where a token may look; None for everywhere."""
        config, length = self.settings, x.shape[1]
        everywhere = torch.ones(length, length, dtype=torch.bool, device=x.device)
        mask = everywhere.tril() if config.causal else everywhere
        if config.class_token or (config.pad_mask and not config.causal):
            real = input_ids != config.pad_id  # text token
            if config.class_token:
                always = torch.ones_like(real[:, :1])
                real = torch.cat([real, always] if config.class_mask_last else [always, real], 1)
            return (mask & real[:, None])[:, None]
        return mask[None, None] if config.causal else None

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Token ids → [text, joint]; the ids say what is padding."""
        if input_ids.shape[1] > self.settings.context:
            raise ModelError(
                f"{input_ids.shape[1]} tokens, but this text tower has {self.settings.context}"
            )
        return self.head(self.pooled(input_ids))

    @property
    def tokenizer(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.tokenizer_spec)
        return self._tokenizer

    def tokenize(self, texts: list[str]) -> dict[str, Tensor]:
        return tokenize_texts(self.tokenizer, self.tokenizer_spec, texts)

    def save_tokenizer(self, folder: Path) -> None:
        """Put the tokenizer's files beside the weights."""
        self.tokenizer.save_pretrained(folder)

    def forward(self, texts: list[str]) -> Tensor:
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InputError(f"expected a list of one or more texts, got {texts!r}")
        ids = self.tokenize(texts)["input_ids"]
        return self.encode(ids.to(self.positions.device))
