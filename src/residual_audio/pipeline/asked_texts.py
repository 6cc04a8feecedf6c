"""Texts that a clip is asked about over time: its first answers and its captions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from residual_audio.atlas.class_answers import answers_of
from residual_audio.atlas.media import AskedText
from residual_audio.direct.joint_arrays import Joint, joint_of
from residual_audio.direct.time_totals import StageSums, totals_over_time
from residual_audio.direct.token_path import TokenPath
from residual_audio.models.clap import AudioTextModel
from residual_audio.store import Store
from residual_audio.types import FloatArray

N_CAPTIONS = 2
"""Of a clip, at most."""


class AskedTexts:
    """Answers and captions of the clips of a store, with their vectors."""

    def __init__(self, model: AudioTextModel, store: Store) -> None:
        self._model = model
        self._store = store
        self._answers = answers_of(store)

    def prepare(self) -> None:
        """Make at once what is the same for all clips: several threads will ask for it."""
        for part in (self._captions, self._embedding):
            len(part)
        if "direct" in self._store.kinds:
            assert self._joint is not None
            assert self._path is not None

    def texts_of(self, row: int) -> list[AskedText]:
        """Texts of a clip in order, with its cosine to each."""
        own = self._embedding[row]
        return [
            {"text": text, "kind": kind, "score": float(own @ vector)}
            for text, kind, vector in self._of(row)
        ]

    def times(
        self, sums: StageSums, latent: Tensor, batch: Sequence[int]
    ) -> Iterator[tuple[str, FloatArray]]:
        """`times/<row>` [text, time step] of the clips of one batch."""
        for i, row in enumerate(batch):
            asked = self._of(row)
            if not asked:
                continue
            point = latent[i].double().cpu().numpy()
            length = np.linalg.norm(self._joint(point[None]))
            toward = self._joint.pull(point, np.stack([v for _, _, v in asked])) / length
            found = totals_over_time(self._path, self._model.encoder, sums.of_clip(i),
                                     torch.from_numpy(toward).to(latent))  # fmt: skip
            yield f"times/{row}", found.astype(np.float32)

    def _of(self, row: int) -> list[tuple[str, str, FloatArray]]:
        answers, found = self._answers, []
        if answers is not None:
            texts = answers.texts_of(row)
            found = [(answers.classes[c], "answer", texts[c]) for c in answers.chosen(row)]
        captions = list(self._store.clips["captions"][row])[:N_CAPTIONS]
        return [*found, *((text, "caption", self._captions[text]) for text in captions
                          if text in self._captions)]  # fmt: skip

    @cached_property
    def _captions(self) -> dict[str, FloatArray]:
        if not self._store.has_text:
            return {}
        every = {text for own in self._store.clips["captions"] for text in list(own)[:N_CAPTIONS]}
        texts = sorted(every)
        if not texts:
            return {}
        vectors = np.asarray(self._model.embed_text(texts), np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return dict(zip(texts, vectors, strict=True))

    @cached_property
    def _embedding(self) -> FloatArray:
        return np.asarray(self._store.embedding(), np.float64)

    @cached_property
    def _joint(self) -> Joint:
        return joint_of(self._store)

    @cached_property
    def _path(self) -> TokenPath:
        return TokenPath(self._model.encoder)
