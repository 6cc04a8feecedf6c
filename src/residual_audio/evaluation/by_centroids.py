"""Classification without texts: a class is the mean of its clips in other grouped folds.

No clip is judged by itself or by its own recording. Classes are learned from labels: it is not
zero-shot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from residual_audio import provenance
from residual_audio.data.base import Dataset
from residual_audio.data.splits import group_of, grouped_folds
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.errors import DatasetError
from residual_audio.evaluation.clip_notes import N_RESAMPLES
from residual_audio.evaluation.zero_shot import LabelledVectors, result_of
from residual_audio.judge.answers import class_index
from residual_audio.judge.centroids import best_scale, class_centroids
from residual_audio.judge.of_store import classes_with_clips, clips_of
from residual_audio.metrics.uncertainty import how_made
from residual_audio.models.training_data import heard_before
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.types import Clip, FloatArray, Result

TASK = "centroids"
MOST_FOLDS = 5


def answer_by_centroids(
    vectors: FloatArray, clips: Sequence[Clip], classes: Sequence[str], seed: int = 0
) -> tuple[FloatArray, FloatArray, int]:
    """Cosines [clip, class] with centroids of other folds, the inverse temperature of each clip
    [clip, 1] as the clips of other folds have it, and the number of folds."""
    codes = class_index([clip.label for clip in clips], classes)
    groups = [len({group_of(c) for c in clips if c.label == name}) for name in classes]
    n_folds = max(2, min(MOST_FOLDS, *groups))
    folds = grouped_folds(clips, n_folds, seed)
    unit = F.normalize(torch.as_tensor(np.array(vectors, np.float32)), dim=-1)
    cosines = torch.empty(len(clips), len(classes))
    for fold in range(n_folds):
        here = torch.from_numpy(np.flatnonzero(folds == fold))
        centroids = class_centroids(unit, codes, classes, np.flatnonzero(folds != fold))
        cosines[here] = unit[here] @ centroids.T
    right = F.one_hot(torch.from_numpy(codes), len(classes)).bool()
    scales = np.empty((len(clips), 1))
    for fold in range(n_folds):
        others = torch.from_numpy(folds != fold)
        scales[folds == fold] = best_scale(cosines[others], right[others])
    return cosines.numpy().astype(np.float64), scales, n_folds


def evaluate_by_centroids(
    model: JointEmbedder,
    dataset: Dataset,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> Result:
    """The scores of a zero-shot evaluation, by centroids instead of prompts."""
    if len(dataset.classes) < 2:
        raise DatasetError(f"{dataset.name} has {len(dataset.classes)} classes: there must be two")
    embedded = embed_clips(model, dataset, embedding, progress=progress)
    by_id = {clip.id: clip for clip in dataset.clips}
    clips = [by_id[name] for name in embedded.ids]
    classes = _present(dataset.classes, clips)
    cosines, scales, n_folds = answer_by_centroids(embedded.vectors, clips, classes, seed)
    vectors = LabelledVectors(
        provenance.model_label(model), dataset.name, cosines, clips, classes, scales,
        _said(n_folds, seed), embedded.skipped, embedded.remarks,
        heard_before(model.trained_on, dataset),
    )  # fmt: skip
    record = provenance.collect(
        model=model,
        dataset=dataset,
        seed=seed,
        long=embedding.long,
        intervals=how_made(n_resamples),
    )
    return result_of(vectors, record, task=TASK, split=split, seed=seed, n_resamples=n_resamples)


def evaluate_store(
    store: Store, *, split: str = "all", seed: int = 0, n_resamples: int = N_RESAMPLES
) -> Result:
    """The same from the embeddings of a store."""
    clips, classes = clips_of(store), classes_with_clips(store)
    cosines, scales, n_folds = answer_by_centroids(store.embedding(), clips, classes, seed)
    vectors = LabelledVectors(
        store.model_info.name, store.dataset_info.name, cosines, clips, classes, scales,
        _said(n_folds, seed), store.skipped, store.remarks, store.heard_before,
    )  # fmt: skip
    record = provenance.collect(seed=seed, store=store.asked, intervals=how_made(n_resamples))
    return result_of(vectors, record, task=TASK, split=split, seed=seed, n_resamples=n_resamples)


def _present(classes: Sequence[str], clips: Sequence[Clip]) -> list[str]:
    there = {clip.label for clip in clips}
    return [name for name in classes if name in there]


def _said(n_folds: int, seed: int) -> dict[str, object]:
    return {"centroids": {"folds": n_folds, "seed": seed, "of": "clips in other grouped folds"}}
