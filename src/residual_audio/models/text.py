"""Text towers from transformers, with weights out of the CLAP checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residual_audio.errors import InputError, ModelError
from residual_audio.models.clip_vocabulary import FILE as CLIP_VOCABULARY
from residual_audio.models.clip_vocabulary import read_vocabulary
from residual_audio.models.hub import hub_reachable
from residual_audio.models.joint import HEADS, Codebook, JointHead, item_projection
from residual_audio.models.text_cleaning import Cleaning, clean_text
from residual_audio.models.weights import get

ARCHITECTURES = {
    "clap-text": ("ClapTextConfig", "ClapTextModel", {}),
    "roberta": ("RobertaConfig", "RobertaModel", {}),
    "gpt2": ("GPT2Config", "GPT2Model", {}),
    "bert": ("BertConfig", "BertModel", {}),
    "roberta-no-pooler": ("RobertaConfig", "RobertaModel", {"add_pooling_layer": False}),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaModel", {}),
    "xlm-roberta-no-pooler": (
        "XLMRobertaConfig",
        "XLMRobertaModel",
        {"add_pooling_layer": False},
    ),
    "t5-encoder": ("T5Config", "T5EncoderModel", {}),
    "modernbert": ("ModernBertConfig", "ModernBertModel", {}),
    "bert-no-pooler": ("BertConfig", "BertModel", {"add_pooling_layer": False}),
}
"""Name in our config → transformers config class, model class, constructor options."""


VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model")


@dataclass(frozen=True)
class TokenizerSpec:
    """Where the vocabulary comes from and how texts become ids."""

    source: str
    """Folder with tokenizer.json, a repository id such as `roberta-base`, or CLIP's merges."""
    max_length: int = 77
    padding: str = "max_length"
    suffix: str = ""
    """Appended to every text (Microsoft: ` <|endoftext|>`)."""
    pad_token: str | None = None
    pad_id: int | None = None
    """Where padding is an id that no text gives (CLIP: 0, though a token has it too)."""
    clean: Cleaning = ""
    no_separator: bool = False
    """Ids of the separator become 0 (open_clip's `strip_sep_token`)."""


class Words(JointHead):
    """MGA-CLAP's text side: word states → codebook, special tokens left out."""

    kind = "word-codebook"
    reads_latent = False

    def __init__(self, d_in: int, d_out: int, n_codes: int) -> None:
        super().__init__()
        self.config = {"d_in": d_in, "d_out": d_out, "n_codes": n_codes}
        self.proj = item_projection(d_in, d_out)
        self.codebook = Codebook(n_codes, d_out)

    def from_words(self, hidden: Tensor, mask: Tensor) -> Tensor:
        return self.codebook(self.proj(hidden), mask.to(hidden.dtype))


TEXT_HEADS: dict[str, type[JointHead]] = {**HEADS, Words.kind: Words}


class TransformersText(nn.Module):
    """Texts → joint space, not normalised."""

    kind = "transformers"

    def __init__(
        self,
        architecture: str,
        config: Mapping[str, object],
        pool: str,
        head: JointHead,
        tokenizer: TokenizerSpec,
    ) -> None:
        super().__init__()
        import transformers

        if architecture not in ARCHITECTURES:
            raise ModelError(
                f"unknown text tower '{architecture}'; known: {', '.join(ARCHITECTURES)}"
            )
        config_name, model_name, options = ARCHITECTURES[architecture]
        self.architecture = architecture
        self.pool = pool
        self.tokenizer_spec = tokenizer
        built = getattr(transformers, config_name)(**config)
        self.backbone_config = dict(config)
        self.backbone = getattr(transformers, model_name)(built, **options)
        self.head = head
        self._tokenizer: Any = None

    @property
    def config(self) -> dict[str, Any]:
        return {
            "architecture": self.architecture,
            "config": self.backbone_config,
            "pool": self.pool,
            "head": {"kind": self.head.kind, "config": self.head.config},
            "tokenizer": asdict(self.tokenizer_spec),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], folder: Path) -> TransformersText:
        head = TEXT_HEADS[config["head"]["kind"]](**config["head"]["config"])
        spec = dict(config["tokenizer"])
        if (folder / "tokenizer.json").is_file():
            spec["source"] = str(folder)
        return cls(
            config["architecture"], config["config"], config["pool"], head, TokenizerSpec(**spec)
        )

    def encode(self, input_ids: Tensor, attention_mask: Tensor, **extra: Tensor) -> Tensor:
        """Token ids → [text, joint]."""
        out = self.backbone(input_ids=input_ids, attention_mask=attention_mask)
        hidden = out.last_hidden_state
        if self.pool == "pooler":
            pooled = out.pooler_output
        elif self.pool == "first":
            pooled = hidden[:, 0]
        elif self.pool == "mean":
            mask = attention_mask[..., None].to(hidden.dtype)
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        elif self.pool == "mean-all":  # padding included, as upstream
            pooled = hidden.mean(1)
        elif self.pool == "last-nonzero":
            # Upstream counts non-zero ids, so an inner '!' (id 0) moves it one token to the left.
            last = (input_ids != 0).sum(-1) - 1
            pooled = hidden[torch.arange(len(hidden), device=hidden.device), last]
        elif self.pool == "words":
            assert isinstance(self.head, Words)
            words = (1 - extra["special_tokens_mask"])[:, 1:]  # [CLS] is dropped
            return self.head.from_words(hidden[:, 1:], words)
        else:
            raise ModelError(f"unknown text pooling '{self.pool}'")
        return self.head.from_latent(pooled)

    def tokenize(self, texts: list[str]) -> dict[str, Tensor]:
        """Texts → ids and masks, padded as the family does."""
        return tokenize_texts(
            self.tokenizer, self.tokenizer_spec, texts, special=self.pool == "words"
        )

    @property
    def tokenizer(self) -> Any:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.tokenizer_spec)
        return self._tokenizer

    def save_tokenizer(self, folder: Path) -> None:
        """Put the tokenizer's files beside the weights."""
        self.tokenizer.save_pretrained(folder)

    def forward(self, texts: list[str]) -> Tensor:
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InputError(f"expected a list of one or more texts, got {texts!r}")
        device = next(self.parameters()).device
        return self.encode(**{key: value.to(device) for key, value in self.tokenize(texts).items()})


class NoTextError(ModelError):
    """The files that turn a text into numbers are not there; audio works."""


class MissingText(nn.Module):
    """Stands where a text tower would, when its files are not there: audio works, texts do not."""

    kind = "missing"

    def __init__(self, message: str) -> None:
        super().__init__()
        self.config = {"message": message}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], folder: Path) -> MissingText:
        return cls(config["message"])

    def save_tokenizer(self, folder: Path) -> None:
        raise ModelError(self.config["message"])

    def forward(self, texts: list[str]) -> Tensor:
        raise NoTextError(self.config["message"])


def read_bert_config(
    tensors: Mapping[str, Tensor], where: str, n_heads: int | None
) -> dict[str, Any]:
    """BERT's sizes from its tensors; heads are 64 wide unless their number is given."""
    words = get(tensors, "embeddings.word_embeddings.weight", where)
    layers = {key.split(".")[2] for key in tensors if key.startswith("encoder.layer.")}
    inner = get(tensors, "encoder.layer.0.intermediate.dense.bias", where)
    positions = get(tensors, "embeddings.position_embeddings.weight", where)
    if n_heads is None and words.shape[1] % 64:
        raise ModelError(
            f"{where} is {words.shape[1]} wide: not heads of 64, as in every release, so their "
            "number must be given (text_heads)"
        )
    return {
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "num_hidden_layers": len(layers),
        "num_attention_heads": n_heads or words.shape[1] // 64,
        "intermediate_size": inner.shape[0],
        "max_position_embeddings": positions.shape[0],
    }


def tokenize_texts(
    tokenizer: Any, spec: TokenizerSpec, texts: Sequence[str], special: bool = False
) -> dict[str, Tensor]:
    """Ids and masks; `special` asks for the mask of special tokens too."""
    batch = tokenizer(
        [clean_text(text, spec.clean) + spec.suffix for text in texts],
        padding=False if spec.pad_id is not None else spec.padding,
        truncation=True,
        max_length=spec.max_length,
        return_tensors=None if spec.pad_id is not None else "pt",
        return_special_tokens_mask=special,
    )
    if spec.pad_id is not None:
        return _pad(batch["input_ids"], spec)
    wanted = ("input_ids", "attention_mask", "special_tokens_mask")
    found = {key: batch[key] for key in wanted if key in batch}
    if spec.no_separator:
        found["input_ids"].masked_fill_(found["input_ids"] == tokenizer.sep_token_id, 0)
    return found


def _pad(rows: list[list[int]], spec: TokenizerSpec) -> dict[str, Tensor]:
    fixed = spec.padding == "max_length"
    length = spec.max_length if fixed else max(len(row) for row in rows)
    filled = [row + [spec.pad_id or 0] * (length - len(row)) for row in rows]
    real = [[1] * len(row) + [0] * (length - len(row)) for row in rows]
    return {"input_ids": torch.tensor(filled), "attention_mask": torch.tensor(real)}


def load_tokenizer(spec: TokenizerSpec) -> Any:
    """A tokenizer from a folder, the Hugging Face cache or, when online, the hub."""
    from transformers import AutoTokenizer

    error: Exception | None = None
    folder = Path(spec.source)
    # Without vocabulary files transformers makes an empty tokenizer rather than an error.
    empty = folder.is_dir() and not any((folder / name).is_file() for name in VOCABULARIES)
    if spec.source.endswith(CLIP_VOCABULARY) and folder.is_file():
        return read_vocabulary(folder)
    for local_only in () if empty else (True, False) if hub_reachable() else (True,):
        try:
            # a vocabulary is data: it is checked against the weights by `prove`, and no code is run
            tokenizer = AutoTokenizer.from_pretrained(  # nosec B615
                spec.source, local_files_only=local_only, trust_remote_code=False
            )
            break
        except Exception as raised:  # transformers raises OSError, ValueError and hub errors alike
            error = raised
    else:
        raise NoTextError(
            f"the tokenizer '{spec.source}' has no vocabulary: it is not in that folder or the "
            f"Hugging Face cache, and the hub gave nothing. On a machine with network run "
            f"`hf download` for it and copy the cache, or put its tokenizer.json and "
            f"tokenizer_config.json into the model's folder."
        ) from error
    if spec.pad_token is not None:
        tokenizer.add_special_tokens({"pad_token": spec.pad_token})
    return tokenizer
