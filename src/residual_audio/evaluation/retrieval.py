"""Text-to-audio and audio-to-text retrieval with several captions a clip.

Text to audio: every caption is a query. Audio to text: every clip is a query, and any of its
captions is a right answer. A caption that several clips carry word for word is right for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.cached import Embedding, embed_clips, embed_texts, need_text
from residual_audio.errors import DatasetError, InputError
from residual_audio.metrics import retrieval as metrics
from residual_audio.metrics import uncertainty
from residual_audio.types import Clip, Result, Score

Array = npt.NDArray[Any]
KS = (1, 5, 10)
N_RESAMPLES = 1000


def score_direction(
    prefix: str,
    ranks: Sequence[Array],
    n_items: int,
    *,
    groups: Sequence[Any] | None = None,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> tuple[Score, ...]:
    """R@1/5/10, mAP@10 and median rank of one direction, from the ranks of the right answers."""
    n = len(ranks)
    n_relevant = np.array([len(r) for r in ranks])
    draw: dict[str, Any] = {"groups": groups, "seed": seed, "n_resamples": n_resamples}
    scores = []
    for k in KS:
        hits = metrics.recall_at_k(ranks, k)
        low, high = uncertainty.mean_interval(hits, **draw)
        chance = metrics.chance_recall_at_k(n_items, n_relevant, k)
        scores.append(Score(f"{prefix}_r{k}", float(hits.mean()), low, high, n, chance))
    precision = metrics.average_precision_at_k(ranks, 10)
    low, high = uncertainty.mean_interval(precision, **draw)
    chance = metrics.chance_average_precision_at_k(n_items, n_relevant, 10)
    scores.append(Score(f"{prefix}_map10", float(precision.mean()), low, high, n, chance))
    first = metrics.first_rank(ranks)
    low, high = uncertainty.interval(lambda w: metrics.weighted_median(first, w), n, **draw)
    chance = metrics.chance_median_rank(n_items, n_relevant)
    scores.append(
        Score(f"{prefix}_median_rank", float(np.median(first)), float(low), float(high), n, chance)
    )
    return tuple(scores)


def rank_both_ways(
    audio: Array, text: Array, relevant: Sequence[Sequence[int]]
) -> tuple[list[Array], list[Array]]:
    """Ranks of the right clips of each caption and of the right captions of each clip.

    `relevant[j]` holds the clips that caption j describes.
    """
    if len(text) != len(relevant):
        raise InputError(f"{len(text)} caption vectors do not fit {len(relevant)} captions")
    audio, text = np.asarray(audio, np.float64), np.asarray(text, np.float64)
    captions_of: list[list[int]] = [[] for _ in range(len(audio))]
    for j, clips in enumerate(relevant):
        for i in clips:
            captions_of[i].append(j)
    t2a = metrics.relevant_ranks(text @ audio.T, relevant)
    a2t = metrics.relevant_ranks(audio @ text.T, captions_of)
    return t2a, a2t


def evaluate_retrieval(
    model: Any,
    dataset: Any,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    **how: Unpack[Embedding],
) -> Result:
    """Both directions of one model on one captioned data set."""
    need_text(model)
    captioned = [clip for clip in dataset.clips if any(c.strip() for c in clip.captions)]
    if not captioned:
        raise DatasetError(
            f"{dataset.name} has no captions: retrieval needs them, use --task zero-shot for labels"
        )
    # clips without a caption are neither queries nor answers: their sound is not needed
    part = dataset
    if len(captioned) < len(dataset.clips):
        part = replace(dataset, clips=tuple(captioned))
    embedded = embed_clips(model, part, **how)
    row = {name: i for i, name in enumerate(embedded.ids)}
    clips: list[Clip] = [clip for clip in captioned if clip.id in row]
    if len(clips) < 2:
        raise DatasetError(
            f"{dataset.name} has {len(clips)} readable clips with captions: two or more are needed"
        )
    audio = embedded.vectors[[row[clip.id] for clip in clips]]
    asked = [(i, c.strip()) for i, clip in enumerate(clips) for c in clip.captions if c.strip()]
    described: dict[str, set[int]] = {}
    for i, caption in asked:
        described.setdefault(caption.lower(), set()).add(i)
    relevant = [sorted(described[caption.lower()]) for _, caption in asked]
    text = embed_texts(model, [caption for _, caption in asked], cache=how.get("cache", True))
    t2a, a2t = rank_both_ways(audio, text, relevant)

    groups = [clip.group or clip.id for clip in clips]
    caption_groups = [groups[i] for i, _ in asked]
    draw: dict[str, Any] = {"seed": seed, "n_resamples": n_resamples}
    scores = score_direction("t2a", t2a, len(clips), groups=caption_groups, **draw)
    scores += score_direction("a2t", a2t, len(asked), groups=groups, **draw)
    first_t2a, first_a2t = metrics.first_rank(t2a), metrics.first_rank(a2t)
    return Result(
        task="retrieval",
        model=provenance.model_label(model),
        dataset=dataset.name,
        split=split,
        scores=scores,
        per_item={
            "direction": ["t2a"] * len(asked) + ["a2t"] * len(clips),
            "id": [clips[i].id for i, _ in asked] + [clip.id for clip in clips],
            "group": [*caption_groups, *groups],
            "caption": [caption for _, caption in asked] + [None] * len(clips),
            "rank": [*first_t2a.tolist(), *first_a2t.tolist()],
            "n_right": [len(r) for r in [*t2a, *a2t]],
        },
        details={
            "n_clips": len(clips),
            "n_captions": len(asked),
            "n_shared_captions": sum(len(r) > 1 for r in relevant),
            "n_without_caption": len(dataset.clips) - len(captioned),
            "n_groups": len(set(groups)),
            "skipped": dict(embedded.skipped),
        },
        provenance=provenance.collect(
            model=model,
            dataset=dataset,
            seed=seed,
            long=how.get("long", "first"),
            intervals=f"95%, {n_resamples} bootstrap resamples of groups",
        ),
    )
