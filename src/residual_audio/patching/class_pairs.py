"""Exchanges between clips of different classes: pairs out of any labelled data set.

What tells the two clips apart is the cosine with the clean clip's class less that with the other's.
A class is its prompt, or, where the model has no text side, the centroid of its clips in other
grouped folds, so that no clip is judged by itself or by its own recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from residual_audio.data.base import Dataset
from residual_audio.data.splits import group_of, grouped_folds
from residual_audio.errors import DatasetError
from residual_audio.judge.answers import class_index
from residual_audio.judge.centroids import class_centroids
from residual_audio.models.clap import AudioTextModel
from residual_audio.passes.lengths import Rows
from residual_audio.passes.loop import Hearing
from residual_audio.passes.sources import cut_clips, reason
from residual_audio.patching.exchanges import (
    Exchange,
    Exchanges,
    exchanges_of_pairs,
    hear_features,
)
from residual_audio.patching.measures import MeasureName, TextMargin, likeness
from residual_audio.progress import SILENT, Progress
from residual_audio.types import Clip

MOST_FOLDS = 5
Classes = Callable[[int], Tensor]
"""Clip → the vectors [class, d] that it may be judged by."""


def exchanges_of_dataset(
    model: AudioTextModel,
    dataset: Dataset,
    measure: MeasureName = "difference",
    hearing: Hearing | None = None,
    progress: Progress = SILENT,
    seed: int = 0,
) -> Exchanges:
    """The pairs of a data set; of one that has classes instead, clips of different classes."""
    labels = {clip.label for clip in dataset.clips if clip.label is not None}
    if dataset.pairs or len(labels) < 2:
        return exchanges_of_pairs(model, dataset, measure, hearing, progress)
    return exchanges_of_classes(model, dataset, measure, hearing, progress, seed)


def exchanges_of_classes(
    model: AudioTextModel,
    dataset: Dataset,
    measure: MeasureName = "difference",
    hearing: Hearing | None = None,
    progress: Progress = SILENT,
    seed: int = 0,
) -> Exchanges:
    """Both directions of pairs of clips of two classes; a recording meets one other."""
    hearing = hearing or Hearing()
    clips = [clip for clip in dataset.clips if clip.id not in dataset.missing]
    cut = cut_clips(model, dataset, hearing.long)
    heard = hear_features(model, clips, cut, hearing, progress)
    skipped = {clips[p].id: reason(error, clips[p]) for p, error in heard.skipped.items()}
    clips = [clips[place] for place in heard.places]
    present = {clip.label for clip in clips}
    names = [name for name in dataset.classes if name in present]
    codes = class_index([clip.label for clip in clips], names)
    pairs = pairs_of_classes(clips, codes, heard.features.group.tolist(), seed)
    if not pairs:
        raise DatasetError(f"{dataset.name} has no two clips of different classes to exchange")
    classes: Classes | None = None
    if measure != "embedding":
        classes = _classes(model, dataset, clips, names, heard.features, seed)
    items = []
    for first, second in pairs:
        for clean, corrupt in ((first, second), (second, first)):
            aim = (
                likeness
                if classes is None
                else _margin(classes(corrupt), int(codes[clean]), int(codes[corrupt]), measure)
            )
            pair = f"{clips[first].id} / {clips[second].id}"
            group = f"{group_of(clips[first])} / {group_of(clips[second])}"
            items.append(Exchange(pair, group, clean, corrupt, aim))
    return Exchanges(model, heard.features, heard.durations_s, tuple(items), skipped, measure)


def _margin(classes: Tensor, own: int, other: int, measure: MeasureName) -> TextMargin:
    wrong = classes[other : other + 1]
    if measure == "margin":
        wrong = classes[torch.arange(len(classes)) != own]
    return TextMargin(classes[own : own + 1], wrong)


def pairs_of_classes(
    clips: Sequence[Clip], codes: np.ndarray, lengths: Sequence[int], seed: int
) -> list[tuple[int, int]]:
    """Groups of two classes meet in twos, and their clips one by one: pairs that share no source
    are independent. Clips of different lengths cannot be exchanged."""
    draw = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for i, clip in enumerate(clips):
        groups.setdefault(group_of(clip), []).append(i)
    waiting = [groups[name] for name in sorted(groups)]
    draw.shuffle(waiting)  # type: ignore[arg-type]
    found = []
    while waiting:
        mine = waiting.pop()
        for place, others in enumerate(waiting):
            met = [
                (a, b)
                for a, b in zip(mine, others, strict=False)
                if codes[a] != codes[b] and lengths[a] == lengths[b]
            ]
            if met:
                found += met
                del waiting[place]
                break
    return found


def _classes(
    model: AudioTextModel,
    dataset: Dataset,
    clips: Sequence[Clip],
    names: Sequence[str],
    features: Rows,
    seed: int,
) -> Classes:
    if model.text is not None:
        prompts = [dataset.template.replace("{}", name) for name in names]
        vectors = torch.from_numpy(np.array(model.embed_text(prompts))).to(model.device)
        return lambda clip: vectors
    codes = class_index([clip.label for clip in clips], names)
    sources = [len({group_of(c) for c in clips if c.label == name}) for name in names]
    n_folds = max(2, min(MOST_FOLDS, *sources))
    folds = grouped_folds(clips, n_folds, seed)
    unit = _embedded(model, features)
    centroids = [
        class_centroids(unit, codes, names, np.flatnonzero(folds != fold)).to(model.device)
        for fold in range(n_folds)
    ]
    return lambda clip: centroids[folds[clip]]


@torch.no_grad()
def _embedded(model: AudioTextModel, features: Rows) -> Tensor:
    """[clip, d], unit length."""
    parts = torch.arange(len(features)).split(8)
    found = [features.run(some, lambda x: model.joint(model.encode(x))) for some in parts]
    return F.normalize(torch.cat(found), dim=-1).cpu()
