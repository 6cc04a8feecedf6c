"""CompA: pairs (and triplets) of sounds whose captions share their words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.data.base import Dataset, Pair
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.embeddings.of_texts import embed_texts, need_text
from residual_audio.errors import DatasetError
from residual_audio.evaluation.clip_notes import N_RESAMPLES, clip_notes
from residual_audio.metrics import compa as metrics
from residual_audio.metrics import uncertainty
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]
RULE = "F: s00>s10 and s11>s01; G: s00>s01 and s11>s10; H: both; ties fail"


@dataclass(frozen=True)
class PairVectors:
    """Items whose clips could be read, with the vectors of their captions and clips."""

    pairs: tuple[Pair, ...]
    groups: tuple[str, ...]
    """Items built from one source belong together."""
    text: Array
    """[item, k, d]"""
    audio: Array
    """[item, k, d]"""


@dataclass(frozen=True)
class FailureShares:
    """Why items fail: by which side, and the medians behind it."""

    n_failing: int
    share: Mapping[str, float]
    """text, audio, alignment → share of the failing items."""
    median_text_separation: float
    median_audio_separation: float
    median_alignment: float


def score_pairs(
    text: Array,
    audio: Array,
    *,
    groups: Sequence[str] | None = None,
    suffix: str = "",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> tuple[Score, ...]:
    """F, G, H and, for pairs, the one-sided variants. `text`, `audio` [item, k, d], unit rows.

    Intervals are those of shares, items of a group together.
    """
    similarity = np.einsum("itd,iad->ita", np.asarray(text, float), np.asarray(audio, float))
    n, k = similarity.shape[:2]
    scores = []
    for name, passed in metrics.outcomes(similarity).items():
        hits = passed.astype(np.float64)
        low, high = uncertainty.mean_interval(
            hits, groups=groups, seed=seed, n_resamples=n_resamples
        )
        chance = metrics.chance(name, k)
        scores.append(Score(name + suffix, float(hits.mean()), low, high, n, chance))
    return tuple(scores)


def evaluate_compa(
    model: JointEmbedder,
    dataset: Dataset,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> Result:
    """One model on one set of compositional pairs; items with an unreadable clip are left out."""
    need_text(model)
    if not dataset.pairs:
        raise DatasetError(
            f"{dataset.name} has no compositional pairs: use compa-order, compa-attribute, or "
            "synthetic with the option kind=order or kind=attribute"
        )
    embedded = embed_clips(model, dataset, embedding, progress=progress)
    row = {name: i for i, name in enumerate(embedded.ids)}
    readable = [p for p in dataset.pairs if all(c.id in row for c in p.clips[:2])]
    if not readable:
        raise DatasetError(f"no item of {dataset.name} has two readable clips")
    captions = [caption for pair in readable for caption in pair.captions]
    vectors = embed_texts(model, captions, cache=embedding.cache)
    of_text = dict(zip(captions, vectors, strict=True))
    of_clip = {name: embedded.vectors[i] for name, i in row.items()}

    two = _gather(readable, 2, of_text, of_clip)
    three = [p for p in readable if len(p.clips) > 2 and p.clips[2].id in row]
    scores = score_pairs(two.text, two.audio, groups=two.groups, seed=seed, n_resamples=n_resamples)
    if three:
        triplets = _gather(three, 3, of_text, of_clip)
        scores += score_pairs(
            triplets.text, triplets.audio, groups=triplets.groups, suffix="_triplet", seed=seed,
            n_resamples=n_resamples,
        )  # fmt: skip
    items, findings = _look_into(two)
    return Result(
        task="compa",
        model=provenance.model_label(model),
        dataset=dataset.name,
        split=split,
        scores=scores,
        per_item=items,
        details={
            "n_pairs": len(readable),
            "n_triplets": len(three),
            "n_left_out": len(dataset.pairs) - len(readable),
            **findings,
            **clip_notes(model, dataset, embedded),
        },
        provenance=provenance.collect(
            model=model, dataset=dataset, seed=seed, long=embedding.long, rule=RULE
        ),
    )


def _gather(
    pairs: Sequence[Pair], k: int, of_text: Mapping[str, Array], of_clip: Mapping[str, Array]
) -> PairVectors:
    text = np.array([[of_text[caption] for caption in pair.captions[:k]] for pair in pairs])
    audio = np.array([[of_clip[clip.id] for clip in pair.clips[:k]] for pair in pairs])
    groups = tuple(pair.group for pair in pairs)
    return PairVectors(tuple(pairs), groups, text.astype(np.float64), audio.astype(np.float64))


def _look_into(two: PairVectors) -> tuple[dict[str, list[Any]], dict[str, object]]:
    """Columns of one row an item, and what they come to."""
    similarity = np.einsum("itd,iad->ita", two.text, two.audio)
    margins = metrics.margins(similarity)
    geometry = metrics.pair_geometry(two.text, two.audio)
    sides = metrics.failing_side(two.text, two.audio)
    exchanged = metrics.exchanged(similarity, two.groups)
    items: dict[str, list[Any]] = {
        "id": [pair.id for pair in two.pairs],
        "group": list(two.groups),
        **{name: passed.tolist() for name, passed in metrics.outcomes(similarity).items()},
        **{f"margin_{name}": values.tolist() for name, values in margins.items()},
        **{name: values.tolist() for name, values in geometry.items()},
        "fails_by": list(sides),
    }
    return items, {
        # what these very pairs score when captions are exchanged: the null of close pairs
        **{f"{name}_swap": found.rate for name, found in exchanged.items()},
        "sign_test": {
            name: {"right": found.right, "wrong_throughout": found.wrong, "p": found.p}
            for name, found in exchanged.items()
        },
        "failures": asdict(_failures(sides, geometry)),
        "margins": {
            name: {"mean": float(values.mean()), "median": float(np.median(values))}
            for name, values in margins.items()
        },
    }


def _failures(sides: Sequence[str | None], geometry: Mapping[str, Array]) -> FailureShares:
    counted = Counter(side for side in sides if side is not None)
    failing = sum(counted.values())
    known = geometry["alignment"][~np.isnan(geometry["alignment"])]
    return FailureShares(
        n_failing=failing,
        share={side: counted[side] / failing if failing else 0.0 for side in metrics.SIDES},
        median_text_separation=float(np.median(geometry["text_separation"])),
        median_audio_separation=float(np.median(geometry["audio_separation"])),
        median_alignment=float(np.median(known)) if len(known) else math.nan,
    )
