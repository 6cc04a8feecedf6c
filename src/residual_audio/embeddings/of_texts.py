"""Unit vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from residual_audio.embeddings.embedder import JointEmbedder, Vectors
from residual_audio.embeddings.vector_cache import Embedded, digest_of, recall
from residual_audio.errors import InputError


def need_text(model: JointEmbedder) -> None:
    """Let an audio-only model say so before any sound is embedded."""
    if model.text is None:
        model.embed_text(["a sound"])


def embed_texts(model: JointEmbedder, texts: Sequence[str], *, cache: bool = True) -> Vectors:
    """Unit vectors of texts [n, d], each different text embedded once."""
    distinct = list(dict.fromkeys(texts))
    if not distinct:
        raise InputError("there is no text to embed")

    def compute() -> Embedded:
        vectors = np.asarray(model.embed_text(distinct), dtype=np.float32)
        return Embedded(vectors, tuple(distinct), {})

    key = {"what": "texts", "data": digest_of(distinct), "n": len(distinct)}
    found = recall(model, key, compute) if cache else compute()
    row = {text: i for i, text in enumerate(found.ids)}
    return found.vectors[[row[text] for text in texts]]
