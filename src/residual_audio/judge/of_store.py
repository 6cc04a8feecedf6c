"""Clips and judges made from a store, so that no model is loaded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from residual_audio.data.splits import group_of, grouped_folds
from residual_audio.errors import InputError, StoreError
from residual_audio.judge.answers import Judge, class_index
from residual_audio.judge.centroids import best_scale, class_centroids
from residual_audio.store import Store
from residual_audio.types import Clip


def clips_of(store: Store) -> tuple[Clip, ...]:
    """The clips that have rows, without their sound."""
    table = store.clips
    return tuple(
        Clip(
            id=table["id"][i],
            label=table["label"][i],
            captions=tuple(table["captions"][i]),
            fold=None if table["fold"][i] is None else int(table["fold"][i]),
            group=table["group"][i],
        )
        for i in range(len(table))
    )


def rows_of(
    store: Store, folds: Sequence[str] | None = None, limit: int | None = None
) -> np.ndarray | None:
    """Numbers of the clips of these folds, at most `limit` spread over the order; None for all."""
    number = store.clips["fold"]
    keep = np.arange(len(store))
    if folds:
        known = sorted({str(f) for f in number if f is not None})
        wrong = [f for f in folds if f not in known]
        if wrong:
            raise InputError(
                f"no clip is in fold '{wrong[0]}'; folds: {', '.join(known) or 'none'}"
            )
        keep = np.array([i for i in keep if str(number[i]) in set(folds)])
    if limit is not None and limit < len(keep):
        labels = np.array([str(store.clips["label"][i]) for i in keep])
        order = np.argsort(labels, kind="stable")
        spread = np.linspace(0, len(keep) - 1, limit).round().astype(int)
        keep = np.sort(keep[order[spread]])
    return None if len(keep) == len(store) else keep


def class_judge(store: Store) -> Judge:
    """Answers by class, against the class prompts of the store."""
    classes = store.classes
    found = store.class_embeddings()
    if found is None:
        raise StoreError(
            "this store was made with a model that has no text side: there are no class prompts "
            "to answer with"
        )
    clips = store.clips
    if all(label is None for label in clips["label"]):
        raise InputError(
            f"none of the {len(clips)} clips of this store has a label: this needs labelled clips"
        )
    return Judge.for_labels(list(clips["label"]), classes, np.array(found), store.logit_scale)


def classes_with_clips(store: Store) -> tuple[str, ...]:
    """The classes of a store that any of its clips is of: a part of a set may lack some."""
    there = set(store.clips["label"])
    return tuple(name for name in store.classes if name in there)


def label_judge(store: Store, seed: int = 0) -> Judge:
    """Answers by class: against the class prompts, or, where the model has no text side, against
    class centroids of other clips."""
    return (
        class_judge(store) if store.class_embeddings() is not None else centroid_judge(store, seed)
    )


def centroid_judge(store: Store, seed: int = 0) -> Judge:
    """Answers by class, against the mean embedding of each class: every clip chooses among the
    centroids of the grouped folds that it is not in (five, or as many as every class has groups).

    The temperature is the one that fits these answers best; of all measures only the loss knows it.
    """
    clips, classes = clips_of(store), classes_with_clips(store)
    codes = class_index([clip.label for clip in clips], classes)
    groups = [len({group_of(c) for c in clips if c.label == name}) for name in classes]
    folds = grouped_folds(clips, max(2, min(5, *groups)), seed)
    unit = torch.from_numpy(np.array(store.embedding(), np.float32))
    numbers = sorted(set(folds.tolist()))
    centroids, positive = [], torch.zeros(len(clips), len(numbers) * len(classes), dtype=torch.bool)
    candidates = torch.zeros_like(positive)
    for place, number in enumerate(numbers):
        here = folds == number
        centroids.append(class_centroids(unit, codes, classes, np.flatnonzero(~here)))
        of_fold = slice(place * len(classes), (place + 1) * len(classes))
        rows = torch.from_numpy(np.flatnonzero(here))
        positive[rows, of_fold] = F.one_hot(torch.from_numpy(codes)[rows], len(classes)).bool()
        candidates[rows, of_fold] = True
    texts = torch.cat(centroids)
    return Judge(texts, positive, best_scale(unit @ texts.T, positive, candidates), candidates)


def caption_judge(store: Store) -> Judge:
    """Answers by caption: the captions among the dictionary's texts, each right for its clips."""
    texts, rows = store.texts()
    if rows is None:
        raise StoreError("this store was made with a model that has no text side")
    place = {text: i for i, text in enumerate(texts)}
    captions = store.clips["captions"]
    used = sorted({place[c] for own in captions for c in own if c in place})
    column = {text: i for i, text in enumerate(used)}
    positive = torch.zeros(len(captions), len(used), dtype=torch.bool)
    for clip, own in enumerate(captions):
        for caption in own:
            if caption in place:
                positive[clip, column[place[caption]]] = True
    if not used or not bool(positive.any(1).all()):
        missing = int((~positive.any(1)).sum()) if used else len(captions)
        raise InputError(f"{missing} of {len(captions)} clips have no caption in the store's texts")
    return Judge(torch.from_numpy(np.array(rows)[used]), positive, store.logit_scale)
