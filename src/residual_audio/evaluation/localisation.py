"""Do time maps point at the part of a clip that a text names? Clips of two sounds, one after the
other, and a text for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import numpy as np

from residual_audio import provenance
from residual_audio.data.base import Dataset
from residual_audio.direct.time_map import TimeMap, time_maps
from residual_audio.errors import InputError
from residual_audio.metrics.uncertainty import mean_interval
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.loop import Hearing, hear
from residual_audio.passes.sources import cut_clips
from residual_audio.progress import SILENT, Progress
from residual_audio.types import FloatArray, Result, Score

CHANCE = 0.5


def evaluate_localisation(
    model: AudioTextModel,
    dataset: Dataset,
    texts: Mapping[str, tuple[str, str]],
    *,
    surely: float = 0.38,
    split: str = "all",
    seed: int = 0,
    progress: Progress = SILENT,
) -> Result:
    """`texts`: clip id → what is heard first, and second. The first and the last `surely` of a clip
    belong to one of them each; the middle, where one gives way to the other, is not judged.

    - `own_part`: a text's map has more in its own part than in the other
    - `contrast`: the map of the first text less that of the second has more in the first part

    Each also stage by stage. Chance is one half where both orders of every pair are there.
    """
    clips = [clip for clip in dataset.clips if clip.id in texts]
    if not clips:
        raise InputError("no clip of the data set has texts for its two parts")
    said = sorted({text for clip in clips for text in texts[clip.id]})
    vectors = dict(zip(said, model.embed_text(said), strict=True))
    hits: dict[str, list[float]] = {}
    progress.step("time maps", len(clips))
    cut = cut_clips(model, dataset, "first")
    with closing(hear(clips, cut, Hearing(batch_size=1), device=model.device)) as batches:
        for waves, (place,) in batches:
            first, second = texts[clips[place].id]
            seconds = waves.shape[1] / model.sample_rate_hz
            both = {text: vectors[text] for text in (first, second)}
            found = time_maps(model, model.features(waves), both, seconds)
            for name, hit in _judged(found[first], found[second], surely):
                hits.setdefault(name, []).append(hit)
            progress.advance()
    groups = [clip.group or clip.id for clip in clips]
    return Result(
        task="localisation",
        model=provenance.model_label(model),
        dataset=dataset.name,
        split=split,
        scores=tuple(_score(name, values, groups, seed) for name, values in hits.items()),
        details={"surely": surely, "n_clips": len(clips)},
        provenance=provenance.collect(model=model, dataset=dataset, seed=seed),
    )


def _judged(first: TimeMap, second: TimeMap, surely: float) -> list[tuple[str, float]]:
    found = []
    n_stages = len(first.stages)
    for name, a, b in [
        ("", first.total, second.total),
        *((f"_s{s}", first.stages[s], second.stages[s]) for s in range(n_stages)),
    ]:
        own = [_ends(a, surely), _ends(b, surely)]
        right = [own[0][0] > own[0][1], own[1][1] > own[1][0]]
        gap = _ends(a - b, surely)
        found += [(f"own_part{name}", float(np.mean(right)))]
        found += [(f"contrast{name}", float(gap[0] > gap[1]))]
    return found


def _ends(values: FloatArray, share: float) -> tuple[float, float]:
    """What the first and the last share of the time hold."""
    edges = np.linspace(0, 1, len(values) + 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return float(np.interp(share, edges, sums)), float(sums[-1] - np.interp(1 - share, edges, sums))


def _score(name: str, values: Sequence[float], groups: Sequence[str], seed: int) -> Score:
    low, high = mean_interval(np.array(values), groups=groups, seed=seed)
    return Score(name, float(np.mean(values)), low, high, len(values), CHANCE)
