"""Text-to-audio and audio-to-text retrieval with several captions a clip.

Text to audio: every caption is a query. Audio to text: every clip is a query, and any of its
captions is a right answer. A caption that several clips carry word for word is right for each; the
scores named `own` count only the clip it was written for, as published tables do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.embeddings.of_texts import embed_texts, need_text
from residual_audio.embeddings.vector_cache import Embedded
from residual_audio.errors import DatasetError, InputError
from residual_audio.evaluation.clip_notes import N_RESAMPLES, clip_notes
from residual_audio.metrics import ranks as metrics
from residual_audio.metrics import uncertainty
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Clip, Result, Score

Array = npt.NDArray[Any]
KS = (1, 5, 10)


def score_direction(
    prefix: str,
    ranks: Sequence[Array],
    n_items: int,
    *,
    groups: Sequence[str] | None = None,
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
    return metrics.rank_both_ways(audio @ text.T, relevant)


@dataclass(frozen=True)
class CaptionedClips:
    """Readable clips with captions, and which of them each caption describes."""

    clips: tuple[Clip, ...]
    audio: Array
    """[clip, d]"""
    captions: tuple[str, ...]
    owners: tuple[int, ...]
    """The clip that each caption was written for."""
    relevant: tuple[tuple[int, ...], ...]
    """Every clip that carries the caption, word for word."""
    skipped: Mapping[str, str]
    remarks: Mapping[str, str]

    @property
    def groups(self) -> list[str]:
        return [clip.group or clip.id for clip in self.clips]


def evaluate_retrieval(
    model: JointEmbedder,
    dataset: Dataset,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    embedding: EmbeddingSettings = DEFAULT,
    embedded: Embedded | None = None,
    progress: Progress = SILENT,
) -> Result:
    """Both directions of one model on one captioned data set; `embedded` where clips were heard
    already."""
    need_text(model)
    captioned = [clip for clip in dataset.clips if any(c.strip() for c in clip.captions)]
    if not captioned:
        raise DatasetError(
            f"{dataset.name} has no captions: retrieval needs them, use --task zero-shot for labels"
        )
    # clips without a caption are neither queries nor answers: their sound is not needed
    whole = len(captioned) == len(dataset.clips)
    part = dataset if whole else replace(dataset, clips=tuple(captioned))
    found = embedded or embed_clips(model, part, embedding, progress=progress)
    heard = _captioned(part, found)
    text = embed_texts(model, heard.captions, cache=embedding.cache)
    t2a, a2t = rank_both_ways(heard.audio, text, heard.relevant)
    scores = _score_both(heard, (t2a, a2t), "", seed, n_resamples)
    if any(len(clips) > 1 for clips in heard.relevant):
        own = rank_both_ways(heard.audio, text, [(owner,) for owner in heard.owners])
        scores += _score_both(heard, own, "_own", seed, n_resamples)
    groups = heard.groups
    return Result(
        task="retrieval",
        model=provenance.model_label(model),
        dataset=dataset.name,
        split=split,
        scores=scores,
        per_item=_items(heard, t2a, a2t),
        details={
            "n_clips": len(heard.clips),
            "n_captions": len(heard.captions),
            "n_shared_captions": sum(len(clips) > 1 for clips in heard.relevant),
            "n_without_caption": len(dataset.clips) - len(captioned),
            "n_groups": len(set(groups)),
            **clip_notes(model, dataset, heard),
        },
        provenance=provenance.collect(
            model=model,
            dataset=dataset,
            seed=seed,
            long=embedding.long,
            intervals=uncertainty.how_made(n_resamples),
        ),
    )


def _score_both(
    heard: CaptionedClips,
    ranks: tuple[Sequence[Array], Sequence[Array]],
    suffix: str,
    seed: int,
    n_resamples: int,
) -> tuple[Score, ...]:
    groups = heard.groups
    of_captions = [groups[i] for i in heard.owners]
    draw: dict[str, Any] = {"seed": seed, "n_resamples": n_resamples}
    return score_direction(
        f"t2a{suffix}", ranks[0], len(groups), groups=of_captions, **draw
    ) + score_direction(f"a2t{suffix}", ranks[1], len(of_captions), groups=groups, **draw)


def _captioned(part: Dataset, embedded: Embedded) -> CaptionedClips:
    """Captions are the same where they differ in case only."""
    row = {name: i for i, name in enumerate(embedded.ids)}
    clips = tuple(clip for clip in part.clips if clip.id in row)
    if len(clips) < 2:
        raise DatasetError(
            f"{part.name} has {len(clips)} readable clips with captions: two or more are needed"
        )
    asked = [(i, c.strip()) for i, clip in enumerate(clips) for c in clip.captions if c.strip()]
    described: dict[str, set[int]] = {}
    for i, caption in asked:
        described.setdefault(caption.lower(), set()).add(i)
    return CaptionedClips(
        clips,
        embedded.vectors[[row[clip.id] for clip in clips]],
        tuple(caption for _, caption in asked),
        tuple(i for i, _ in asked),
        tuple(tuple(sorted(described[caption.lower()])) for _, caption in asked),
        embedded.skipped,
        embedded.remarks,
    )


def _items(
    heard: CaptionedClips, t2a: Sequence[Array], a2t: Sequence[Array]
) -> dict[str, list[Any]]:
    """One row a query: every caption, then every clip."""
    n_captions, n_clips = len(heard.captions), len(heard.clips)
    groups = heard.groups
    return {
        "direction": ["t2a"] * n_captions + ["a2t"] * n_clips,
        "id": [heard.clips[i].id for i in heard.owners] + [clip.id for clip in heard.clips],
        "group": [groups[i] for i in heard.owners] + groups,
        "caption": [*heard.captions, *([None] * n_clips)],
        "rank": [*metrics.first_rank(t2a).tolist(), *metrics.first_rank(a2t).tolist()],
        "n_right": [len(ranks) for ranks in [*t2a, *a2t]],
    }
