"""The two clouds that probes look at: audio and text vectors of one model on one data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio.errors import InputError
from residual_audio.metrics.cloud_shape import unit_rows

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Clouds:
    """Unit vectors of both sides, and which of them belong together."""

    model: str
    dataset: str
    audio: Array
    """[n, d]"""
    text: Array | None
    """[m, d]; None where only audio is known."""
    pairs: Array
    """[p, 2]: rows of audio and of text that belong together; may be empty."""
    groups: Array
    """[n]: what each audio row comes from."""
    split: str = "all"
    provenance: dict[str, Any] = field(default_factory=dict)

    def part(self, audio_rows: Array, text_rows: Array) -> Clouds:
        """Only these rows, and the pairs among them."""
        text = None if self.text is None else self.text[text_rows]
        to_audio = np.full(len(self.audio), -1)
        to_audio[audio_rows] = np.arange(len(audio_rows))
        to_text = np.full(0 if self.text is None else len(self.text), -1)
        to_text[text_rows] = np.arange(len(text_rows))
        pairs = self.pairs
        if len(pairs):
            pairs = np.stack([to_audio[pairs[:, 0]], to_text[pairs[:, 1]]], axis=1)
            pairs = pairs[(pairs >= 0).all(1)]
        return replace(
            self,
            audio=self.audio[audio_rows],
            text=text,
            pairs=pairs,
            groups=self.groups[audio_rows],
        )


def make_clouds(
    audio: Array,
    text: Array | None,
    *,
    pairs: Array | None = None,
    groups: Sequence[object] | None = None,
    model: str = "embeddings",
    dataset: str = "files",
    split: str = "all",
    record: dict[str, object] | None = None,
) -> Clouds:
    """Checked and brought to unit length. Without `pairs`, equal counts pair row by row."""
    audio = unit_rows(audio, "audio")
    if text is not None:
        text = unit_rows(text, "text")
        if text.shape[1] != audio.shape[1]:
            raise InputError(
                f"audio has {audio.shape[1]} dimensions and text {text.shape[1]}: not one space"
            )
    if pairs is None and text is not None and len(text) == len(audio):
        pairs = np.stack([np.arange(len(audio))] * 2, axis=1)
    if pairs is None:
        pairs = np.empty((0, 2), dtype=np.int64)
    named = np.arange(len(audio)) if groups is None else np.asarray(groups)
    return Clouds(model, dataset, audio, text, pairs, named, split, record or {})


def thin(clouds: Clouds, n_audio: int, n_text: int, seed: int = 0) -> Clouds:
    """At most this many rows of each side: RankMe and dimension grow with n, so match it first."""
    rng = np.random.default_rng(seed)
    audio_rows = np.sort(rng.permutation(len(clouds.audio))[:n_audio])
    n = 0 if clouds.text is None else len(clouds.text)
    kept = np.isin(clouds.pairs[:, 0], audio_rows) if len(clouds.pairs) else np.empty(0, bool)
    wanted = np.unique(clouds.pairs[kept, 1]) if kept.any() else np.empty(0, np.int64)
    # texts of the clips that stay come first, so that pairs survive
    order = np.concatenate(
        [rng.permutation(wanted), rng.permutation(np.setdiff1d(np.arange(n), wanted))]
    )
    return clouds.part(audio_rows, np.sort(order[:n_text].astype(np.int64)))


def halves(clouds: Clouds, rng: np.random.Generator) -> Clouds:
    """Half of the groups, without replacement; a text goes with its group, or is drawn alone."""
    names = np.unique(clouds.groups)
    chosen = rng.permutation(names)[: max(1, math.ceil(len(names) / 2))]
    audio_rows = np.flatnonzero(np.isin(clouds.groups, chosen))
    n = 0 if clouds.text is None else len(clouds.text)
    owner: list[set[Any]] = [set() for _ in range(n)]
    for i, j in clouds.pairs:
        owner[j].add(clouds.groups[i])
    taken = set(chosen.tolist())
    own = [j for j in range(n) if len(owner[j]) == 1 and next(iter(owner[j])) in taken]
    shared = np.array([j for j in range(n) if len(owner[j]) != 1], dtype=np.int64)
    drawn = rng.permutation(shared)[: math.ceil(len(shared) / 2)]
    return clouds.part(audio_rows, np.sort(np.concatenate([own, drawn]).astype(np.int64)))
