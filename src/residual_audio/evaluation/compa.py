"""CompA: pairs (and triplets) of sounds whose captions share their words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.cached import Embedding, embed_clips, embed_texts, need_text
from residual_audio.errors import DatasetError
from residual_audio.metrics import compa as metrics
from residual_audio.metrics import uncertainty
from residual_audio.types import Result, Score

Array = npt.NDArray[Any]
N_RESAMPLES = 1000


def score_pairs(
    text: Array,
    audio: Array,
    *,
    groups: Sequence[Any] | None = None,
    suffix: str = "",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> tuple[Score, ...]:
    """F, G, H and, for pairs, the one-sided variants. `text`, `audio` [item, k, d], unit rows.

    With one item a group the interval is Wilson's; otherwise groups are resampled.
    """
    similarity = np.einsum("itd,iad->ita", np.asarray(text, float), np.asarray(audio, float))
    n, k = similarity.shape[:2]
    grouped = groups is not None and uncertainty.n_groups(n, groups) < n
    scores = []
    for name, passed in metrics.outcomes(similarity).items():
        hits = passed.astype(np.float64)
        if grouped:
            low, high = uncertainty.mean_interval(
                hits, groups=groups, seed=seed, n_resamples=n_resamples
            )
        else:
            low, high = uncertainty.wilson(int(hits.sum()), n)
        chance = metrics.chance(name, k)
        scores.append(Score(name + suffix, float(hits.mean()), low, high, n, chance))
    return tuple(scores)


def evaluate_compa(
    model: Any,
    dataset: Any,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    **how: Unpack[Embedding],
) -> Result:
    """One model on one set of compositional pairs; items with an unreadable clip are left out."""
    need_text(model)
    if not dataset.pairs:
        raise DatasetError(
            f"{dataset.name} has no compositional pairs: use compa-order, compa-attribute, or "
            "synthetic with the option kind=order or kind=attribute"
        )
    embedded = embed_clips(model, dataset, **how)
    row = {name: i for i, name in enumerate(embedded.ids)}
    pairs = [p for p in dataset.pairs if all(c.id in row for c in p.clips[:2])]
    if not pairs:
        raise DatasetError(f"no item of {dataset.name} has two readable clips")
    captions = [caption for pair in pairs for caption in pair.captions]
    vectors = dict(
        zip(captions, embed_texts(model, captions, cache=how.get("cache", True)), strict=True)
    )

    def gather(chosen: Sequence[Any], k: int) -> tuple[Array, Array]:
        text = np.array([[vectors[c] for c in pair.captions[:k]] for pair in chosen])
        audio = embedded.vectors[[[row[c.id] for c in pair.clips[:k]] for pair in chosen]]
        return text.astype(np.float64), audio.astype(np.float64)

    groups = [_group(pair) for pair in pairs]
    text, audio = gather(pairs, 2)
    draw: dict[str, Any] = {"seed": seed, "n_resamples": n_resamples}
    scores = score_pairs(text, audio, groups=groups, **draw)
    three = [p for p in pairs if len(p.clips) > 2 and p.clips[2].id in row]
    if three:
        triple_groups = [_group(pair) for pair in three]
        scores += score_pairs(*gather(three, 3), groups=triple_groups, suffix="_triplet", **draw)

    similarity = np.einsum("itd,iad->ita", text, audio)
    margin = metrics.margins(similarity)
    geometry = metrics.pair_geometry(text, audio)
    sides = metrics.failing_side(text, audio)
    passed = metrics.outcomes(similarity)
    return Result(
        task="compa",
        model=provenance.model_label(model),
        dataset=dataset.name,
        split=split,
        scores=scores,
        per_item={
            "id": [pair.id for pair in pairs],
            "group": groups,
            **{name: values.tolist() for name, values in passed.items()},
            **{f"margin_{name}": values.tolist() for name, values in margin.items()},
            **{name: values.tolist() for name, values in geometry.items()},
            "fails_by": sides,
        },
        details={
            "n_pairs": len(pairs),
            "n_triplets": len(three),
            "n_left_out": len(dataset.pairs) - len(pairs),
            "failures": _failures(sides, geometry),
            "margins": {
                name: {"mean": float(values.mean()), "median": float(np.median(values))}
                for name, values in margin.items()
            },
            "skipped": dict(embedded.skipped),
        },
        provenance=provenance.collect(
            model=model,
            dataset=dataset,
            seed=seed,
            long=how.get("long", "first"),
            rule="F: s00>s10 and s11>s01; G: s00>s01 and s11>s10; H: both; ties fail",
        ),
    )


def _group(pair: Any) -> str:
    """Items built from one source belong together."""
    return next((clip.group for clip in pair.clips if clip.group), None) or pair.id


def _failures(sides: Sequence[str | None], geometry: dict[str, Array]) -> dict[str, Any]:
    """Share of failing items by the side that fails, and the medians behind it."""
    counted = Counter(side for side in sides if side is not None)
    failing = sum(counted.values())
    known = geometry["alignment"][~np.isnan(geometry["alignment"])]
    return {
        "n_failing": failing,
        "share": {side: counted[side] / failing if failing else 0.0 for side in metrics.SIDES},
        "median_text_separation": float(np.median(geometry["text_separation"])),
        "median_audio_separation": float(np.median(geometry["audio_separation"])),
        "median_alignment": float(np.median(known)) if len(known) else math.nan,
    }
