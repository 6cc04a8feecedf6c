"""An adaptation problem of clips with captions of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np

from residual_audio.adaptation.problem import Problem, StoredVectors
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_module import joint_head
from residual_audio.errors import InputError
from residual_audio.judge.answers import Judge
from residual_audio.judge.of_store import clips_of, rows_of
from residual_audio.passes.kept import Passes
from residual_audio.reweight.cached import Streams
from residual_audio.store import Store
from residual_audio.types import Clip, FloatArray

EmbedTexts = Callable[[Sequence[str]], FloatArray]
"""Texts → [text, d]."""


def captioned_rows(store: Store, folds: Sequence[str] | None = None) -> np.ndarray:
    """Numbers of the clips (of these folds) that have a caption; the others are passed over."""
    rows, clips = rows_of(store, folds), clips_of(store)
    among = range(len(clips)) if rows is None else rows
    found = np.array([i for i in among if captions_of(clips[i])], np.int64)
    if len(found) < 2:
        raise InputError(
            f"{len(found)} of {len(among)} clips have captions: give a data set with captions, or "
            "go by labels (--by labels)"
        )
    return found


def captions_of(clip: Clip) -> list[str]:
    """What was said of a clip, without blank lines."""
    return [caption.strip() for caption in clip.captions if caption.strip()]


def caption_problem(
    store: Store,
    rows: np.ndarray | None = None,
    *,
    embed: EmbedTexts | None = None,
    passes: Passes | None = None,
) -> Problem:
    """The problem of a store's captioned clips, or of these; `passes` are of exactly those.

    The store keeps embeddings of a thousand captions; where it has more, `embed` or the model of
    `passes` makes them.
    """
    keep = captioned_rows(store) if rows is None else rows
    everyone = clips_of(store)
    # clips are divided by their groups alone: a class of one group would never be held out
    clips = tuple(replace(everyone[int(i)], label=None) for i in keep)
    texts = list(dict.fromkeys(caption for clip in clips for caption in captions_of(clip)))
    same: dict[str, list[int]] = {}
    for i, text in enumerate(texts):  # captions are the same where they differ in case only
        same.setdefault(text.lower(), []).append(i)
    positive = np.zeros((len(clips), len(texts)), bool)
    for row, clip in enumerate(clips):
        for caption in captions_of(clip):
            positive[row, same[caption.lower()]] = True
    if embed is None and passes is not None:
        embed = passes.model.embed_text
    vectors = _vectors(store, texts, embed)
    return Problem(
        clips=clips,
        classes=tuple(texts),
        judge=Judge.for_answers(positive, vectors, store.logit_scale),
        head=joint_head(store),
        latent=np.array(store.latent()[keep], np.float32),
        joint=np.array(store.embedding(unit=False)[keep], np.float32),
        contributions=Contributions(store, keep, dtype=np.float32)
        if "direct" in store.kinds
        else None,
        pooled=StoredVectors(store, keep),
        sites=store.sites,
        streams=None if passes is None else Streams(passes),
        about={"model": asdict(store.model_info), "dataset": asdict(store.dataset_info)},
        objective="contrastive",
    )


def _vectors(store: Store, texts: Sequence[str], embed: EmbedTexts | None) -> FloatArray:
    """Embeddings of texts, from the store where it has them all."""
    known, rows = store.texts()
    place = {text: i for i, text in enumerate(known)}
    missing = [text for text in texts if text not in place]
    if rows is not None and not missing:
        return np.array(rows)[[place[text] for text in texts]]
    if embed is None:
        raise InputError(
            f"{len(missing)} of {len(texts)} captions are not among the texts of this store: give "
            "the model (--model), which embeds them"
        )
    return np.asarray(embed(texts), np.float32)
