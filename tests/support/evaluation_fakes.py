"""A model and a data set small enough to know every answer: a clip's sound is its own vector."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from residual_audio.audio.windows import LongPolicy
from residual_audio.data.base import Card, Dataset, Pair
from residual_audio.errors import AudioError
from residual_audio.models.training_data import TrainingData
from residual_audio.types import Clip

D = 16


class FakeModel:
    """Embeds a waveform as its first samples, and a text as it is told (or by its hash)."""

    family = "fake"
    logit_scale = 10.0
    sample_rate_hz = 1000
    joint_dim = D
    window_s = D / 1000
    device = torch.device("cpu")

    def __init__(self, name: str = "fake", texts: Mapping[str, np.ndarray] | None = None) -> None:
        self.name = name
        self.sha256 = hashlib.sha256(name.encode()).hexdigest()
        self.text: object | None = object()
        self.texts = dict(texts or {})
        self.trained_on: tuple[TrainingData, ...] | None = None
        self.windows_heard = 0

    def reads_s(self, long: LongPolicy) -> float | None:
        return None

    def embed_windows(self, waves: torch.Tensor) -> torch.Tensor:
        self.windows_heard += len(waves)
        return waves[:, :D]

    def embed_text(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.stack([self.texts.get(text, text_vector(text)) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def windows(self, samples: np.ndarray, long: LongPolicy = "first") -> np.ndarray:
        n = max(1, len(samples) // D)
        return samples[: n * D].reshape(n, -1)


if TYPE_CHECKING:
    from residual_audio.embeddings.embedder import JointEmbedder

    _is_a_model: JointEmbedder = FakeModel()


def text_vector(text: str) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return np.random.default_rng(seed).normal(size=D)


def dataset(
    vectors: Mapping[str, np.ndarray],
    clips: Sequence[Clip],
    *,
    name: str = "fakes",
    classes: Sequence[str] = (),
    pairs: Sequence[Pair] = (),
    broken: Sequence[str] = (),
) -> Dataset:
    """Clips whose sound is the vector under their id; `broken` ones cannot be read."""
    card = Card(name, name, "labels", "CC0", "", "", "", "")

    def make(clip: Clip, sample_rate_hz: int) -> np.ndarray:
        if clip.id in broken:
            raise AudioError(f"'{clip.id}' is empty")
        return np.asarray(vectors[clip.id], dtype=np.float32)

    recipe = hashlib.sha256(b"".join(np.asarray(v).tobytes() for v in vectors.values())).hexdigest()
    return Dataset(
        name=name,
        root=None,
        clips=tuple(clips),
        card=card,
        classes=tuple(classes),
        template="a {}",
        pairs=tuple(pairs),
        recipe=recipe,
        folds={clip.fold: str(clip.fold) for clip in clips if clip.fold is not None},
        make=make,
    )


def labelled(n_per_class: int = 6, noise: float = 0.0, seed: int = 0) -> tuple[Dataset, FakeModel]:
    """Four classes; a clip is its class's text vector plus noise, two clips share a group."""
    rng = np.random.default_rng(seed)
    classes = ["dog", "rain", "bell", "siren", "wind", "train"]
    vectors, clips = {}, []
    for label in classes:
        for i in range(n_per_class):
            name = f"{label}-{i}"
            vectors[name] = text_vector(f"a {label}") + noise * rng.normal(size=D)
            group = f"{label}/{i // 2}"
            clips.append(Clip(id=name, label=label, fold=1 + i % 2, group=group))
    return dataset(vectors, clips, classes=classes), FakeModel()


def captioned(n: int = 12, per_clip: int = 3, noise: float = 0.0) -> tuple[Dataset, FakeModel]:
    """Each clip with several captions, all near the clip's vector."""
    rng = np.random.default_rng(0)
    vectors, clips, texts = {}, [], {}
    for i in range(n):
        vectors[f"c{i}"] = rng.normal(size=D)
        captions = tuple(f"caption {k} of clip {i}" for k in range(per_clip))
        for caption in captions:
            texts[caption] = vectors[f"c{i}"] + noise * rng.normal(size=D)
        clips.append(Clip(id=f"c{i}", captions=captions, group=f"g{i // 2}"))
    return dataset(vectors, clips), FakeModel(texts=texts)


def paired(n: int = 10, triplets: bool = False, swap: bool = False) -> tuple[Dataset, FakeModel]:
    """Compositional items that a perfect model solves; `swap` makes each caption fit the other."""
    rng = np.random.default_rng(0)
    vectors, texts, pairs, clips = {}, {}, [], []
    for i in range(n):
        k = 3 if triplets and i % 2 == 0 else 2
        members, captions = [], []
        for side in range(k):
            name = f"p{i}-{side}"
            vectors[name] = rng.normal(size=D)
            members.append(Clip(id=name, group=f"p{i}"))
            captions.append(f"item {i} side {side}")
        for side, caption in enumerate(captions):
            target = side if not swap or side > 1 else 1 - side
            texts[caption] = vectors[f"p{i}-{target}"]
        clips += members
        pairs.append(Pair(f"p{i}", tuple(captions), tuple(members)))
    return dataset(vectors, clips, pairs=pairs), FakeModel(texts=texts)
