"""A small text tower with its own vocabulary: byte-level BPE, a pre-norm transformer, mean pooling.

It needs nothing from a hub: tokenizer and weights live in the model's folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from residual_audio.errors import InputError, ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, UNKNOWN = "[PAD]", "[UNK]"


_MOST = {
    "vocabulary": 10**7,
    "width": 2**16,
    "depth": 1000,
    "n_heads": 2**12,
    "max_tokens": 2**16,
    "d_out": 2**16,
}
"""Sizes that no tower of this kind has."""


@dataclass(frozen=True)
class SmallTextConfig:
    """Everything that shapes the tower."""

    vocabulary: int = 8000
    width: int = 256
    depth: int = 4
    n_heads: int = 4
    mlp_ratio: float = 4.0
    max_tokens: int = 48
    d_out: int = 256
    """Width of the joint space."""

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if not (isinstance(value, int) and 1 <= value <= most):
                raise InputError(f"text tower: {name} must be from 1 to {most:,}, got {value!r}")
        if not 0 < self.mlp_ratio <= 64:
            raise InputError(f"text tower: mlp_ratio must be from 0 to 64, got {self.mlp_ratio!r}")
        if self.width % self.n_heads:
            raise InputError(
                f"text tower: width {self.width} is not a multiple of {self.n_heads} heads"
            )


class TextBlock(nn.Module):
    """Self-attention and MLP, each added to the stream."""

    def __init__(self, config: SmallTextConfig) -> None:
        super().__init__()
        hidden = int(config.width * config.mlp_ratio)
        self.n_heads = config.n_heads
        self.norm1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.norm2 = nn.LayerNorm(config.width)
        self.fc1 = nn.Linear(config.width, hidden)
        self.fc2 = nn.Linear(hidden, config.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Stream [text, token, width], additive mask [text, 1, 1, token]."""
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.n_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each: text head token d_head
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))
        x = x + self.proj(out.transpose(1, 2).flatten(2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class SmallText(nn.Module):
    """Texts → joint space, not normalised."""

    kind = "small"

    def __init__(self, config: SmallTextConfig, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings = config
        self.tokenizer = tokenizer
        if tokenizer.get_vocab_size() > config.vocabulary:
            raise ModelError(
                f"the tokenizer has {tokenizer.get_vocab_size()} entries, "
                f"the text tower only {config.vocabulary}"
            )
        tokenizer.enable_truncation(config.max_tokens)
        tokenizer.enable_padding(pad_id=tokenizer.token_to_id(PAD), pad_token=PAD)
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.zeros(config.max_tokens, config.width))
        self.blocks = nn.ModuleList(TextBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.d_out)
        nn.init.normal_(self.tokens.weight, std=0.05)
        nn.init.normal_(self.positions, std=0.02)

    @property
    def config(self) -> dict[str, Any]:
        return asdict(self.settings)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], folder: Path) -> SmallText:
        """Build from the config of a model folder, with the tokenizer that lies in it."""
        return cls(SmallTextConfig(**config), load_bpe(folder / "tokenizer.json"))

    def save_tokenizer(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str(), encoding="utf-8")

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """Texts → ids and mask, padded to the longest."""
        encoded = self.tokenizer.encode_batch([text if text.strip() else "." for text in texts])
        return {
            "input_ids": torch.tensor([e.ids for e in encoded]),
            "attention_mask": torch.tensor([e.attention_mask for e in encoded]),
        }

    def pooled(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Token ids → [text, width], the mean of the normed tokens."""
        return self._pooled(self.tokens(input_ids), attention_mask)

    def _pooled(self, embeddings: Tensor, attention_mask: Tensor) -> Tensor:
        x = embeddings + self.positions[: embeddings.shape[1]]
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for block in self.blocks:
            x = block(x, mask)
        weights = attention_mask[..., None].to(x.dtype)
        return (self.norm(x) * weights).sum(1) / weights.sum(1).clamp(min=1)

    def encode(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Token ids → [text, joint]."""
        return self.head(self.pooled(input_ids, attention_mask))

    def encode_states(self, embeddings: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeddings of the tokens [text, token, width] → [text, joint]."""
        return self.head(self._pooled(embeddings, attention_mask))

    def forward(self, texts: Sequence[str]) -> Tensor:
        if not len(texts) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"expected a list of one or more texts, got {texts!r}")
        device = self.positions.device
        return self.encode(**{key: value.to(device) for key, value in self.tokenize(texts).items()})


def train_bpe(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE tokenizer learned from texts, lower case; any input has a spelling in it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, UNKNOWN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def load_bpe(path: Path) -> Any:
    """The tokenizer of a model folder."""
    from tokenizers import Tokenizer

    if not path.is_file():
        raise ModelError(f"no file '{path}': the text tower's tokenizer was expected there")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"'{path}' is not a readable tokenizer: {error}") from error
