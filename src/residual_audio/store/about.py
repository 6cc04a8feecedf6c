"""What a store is of: the model, the data set and the run that made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from residual_audio.audio.windows import LongPolicy


@dataclass(frozen=True)
class ModelInfo:
    """The model that was run."""

    name: str
    family: str
    sha256: str


@dataclass(frozen=True)
class DatasetInfo:
    """The clips it was run on."""

    name: str
    fingerprint: str
    n_clips: int
    template: str
    """Prompt of a class, with {} for its name."""


@dataclass(frozen=True)
class RunInfo:
    """How it was run."""

    batch_size: int
    shard_size: int
    long: LongPolicy
    """What was heard of clips longer than the model's window."""
    device: str
    precision: str = "float32"
    """Of the encoder's products."""
    hop_s: float | None = None
    """Under `tile`: seconds between the beginnings of windows; None: their length."""


@dataclass(frozen=True)
class StoreSize:
    """What lies on disk."""

    n_clips: int
    """Skipped ones too."""
    n_shards: int
    shard_bytes: int
    n_bytes: int
    """Shards, index and fixed matrices together."""


class JointInfo(TypedDict):
    """The joint head whose parameters lie among the operators."""

    kind: str
    config: dict[str, int]
    norm_eps: dict[str, float]
    """`joint/<norm>` → ε."""


class ArraySpec(TypedDict, total=False):
    """One array of a store."""

    dtype: str
    shape: list[int]
    """Of a row."""
    packed_bits: int


@dataclass(frozen=True)
class Partial:
    """A run over some clips of a data set."""

    n_clips: int
    of: int
