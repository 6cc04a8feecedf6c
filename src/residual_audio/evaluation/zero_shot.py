"""Zero-shot classification: the class whose prompt is nearest. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.embeddings.cached import Embedding, embed_clips
from residual_audio.embeddings.prompts import Prompts, embed_classes
from residual_audio.errors import DatasetError, StoreError
from residual_audio.metrics import classification as metrics
from residual_audio.metrics import uncertainty
from residual_audio.store import Store
from residual_audio.types import Clip, Result, Score

Array = npt.NDArray[Any]
N_RESAMPLES = 1000


def score_classes(
    audio: Array,
    text: Array,
    labels: Array,
    *,
    groups: Sequence[Any] | None = None,
    logit_scale: float = 1.0,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> tuple[tuple[Score, ...], Array]:
    """Scores of unit vectors [n, d] against class vectors [c, d], and the similarities [n, c]."""
    similarity = np.asarray(audio, np.float64) @ np.asarray(text, np.float64).T
    similarity, labels = metrics.validate(similarity, labels)
    n, c = similarity.shape
    rank = metrics.true_rank(similarity, labels)
    predictions = similarity.argmax(1)
    probabilities = metrics.softmax(similarity, logit_scale)
    draw: dict[str, Any] = {"groups": groups, "seed": seed, "n_resamples": n_resamples}

    scores = []
    for k in (1, 5):
        if k < c:
            hits = (rank <= k).astype(np.float64)
            low, high = uncertainty.mean_interval(hits, **draw)
            scores.append(Score(f"top{k}", float(hits.mean()), low, high, n, k / c))

    support = np.bincount(labels, minlength=c)
    chance_map = [metrics.chance_average_precision(n, int(r)) for r in support if r]
    resampled = {
        "macro_f1": lambda w: metrics.macro_f1(labels, predictions, c, w),
        "map": lambda w: metrics.mean_average_precision(similarity, labels, w),
        "ece": lambda w: metrics.expected_calibration_error(probabilities, labels, counts=w),
    }
    chance = {
        "macro_f1": metrics.chance_macro_f1(labels, c),
        "map": float(np.mean(chance_map)),
        "ece": None,
    }
    for name, statistic in resampled.items():
        value = float(statistic(np.ones((1, n)))[0])
        # drawing with replacement moves these scores up or down by itself: shift it back
        low, high = uncertainty.interval(statistic, n, centre=value, **draw)
        low, high = np.clip([low, high], 0.0, 1.0)
        scores.append(Score(name, value, float(low), float(high), n, chance[name]))
    return tuple(scores), similarity


def evaluate_zero_shot(
    model: Any,
    dataset: Any,
    prompts: Prompts,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    **how: Unpack[Embedding],
) -> Result:
    """Zero-shot scores of one model on one labelled data set."""
    classes = list(dataset.classes)
    if len(classes) < 2:
        raise DatasetError(
            f"{dataset.name} has {len(classes)} classes: zero-shot classification needs two or more"
        )
    text = embed_classes(model, classes, prompts)
    embedded = embed_clips(model, dataset, **how)
    by_id: dict[str, Clip] = {clip.id: clip for clip in dataset.clips}
    return _result(
        embedded.vectors,
        text,
        [by_id[i] for i in embedded.ids],
        classes,
        task={
            "model": provenance.model_label(model),
            "dataset": dataset.name,
            "split": split,
        },
        logit_scale=float(model.logit_scale),
        seed=seed,
        n_resamples=n_resamples,
        details={
            "prompts": {"name": prompts.name, "templates": list(prompts.templates)},
            "skipped": dict(embedded.skipped),
        },
        origin=provenance.collect(
            model=model,
            dataset=dataset,
            seed=seed,
            prompts=prompts.templates,
            long=how.get("long", "first"),
            intervals=f"95%, {n_resamples} bootstrap resamples of groups",
        ),
    )


def evaluate_store(
    store: Store, *, split: str = "all", seed: int = 0, n_resamples: int = N_RESAMPLES
) -> Result:
    """The same from a store: embeddings and class prompts were kept, so no model is loaded."""
    text = store.class_embeddings()
    if text is None:
        raise StoreError("this store was made with an audio-only model: it has no class prompts")
    classes = list(store.classes)
    table = store.clips
    clips = [
        Clip(
            id=table["id"][i],
            label=table["label"][i],
            fold=table["fold"][i],
            group=table["group"][i],
        )
        for i in range(len(table))
    ]
    asked = store.manifest["asked"]
    return _result(
        store.embedding(),
        text,
        clips,
        classes,
        task={
            "model": store.manifest["model"]["name"],
            "dataset": asked["dataset"]["name"],
            "split": split,
        },
        logit_scale=store.logit_scale,
        seed=seed,
        n_resamples=n_resamples,
        details={
            "prompts": {"name": "store", "templates": [store.template]},
            "skipped": store.skipped,
        },
        origin=provenance.collect(
            seed=seed,
            store=asked,
            intervals=f"95%, {n_resamples} bootstrap resamples of groups",
        ),
    )


def _result(
    audio: Array,
    text: Array,
    clips: list[Clip],
    classes: list[str],
    *,
    task: dict[str, str],
    logit_scale: float,
    seed: int,
    n_resamples: int,
    details: dict[str, Any],
    origin: dict[str, Any],
) -> Result:
    number = {label: i for i, label in enumerate(classes)}
    unknown = [clip.id for clip in clips if clip.label not in number]
    if unknown:
        raise DatasetError(
            f"{len(unknown)} clips of {task['dataset']} have no label among its classes, the first "
            f"is '{unknown[0]}': zero-shot scores need labelled clips"
        )
    labels = np.array([number[clip.label or ""] for clip in clips])
    groups = [clip.group or clip.id for clip in clips]
    scores, similarity = score_classes(
        audio,
        text,
        labels,
        groups=groups,
        logit_scale=logit_scale,
        seed=seed,
        n_resamples=n_resamples,
    )
    return Result(
        task="zero-shot",
        model=task["model"],
        dataset=task["dataset"],
        split=task["split"],
        scores=scores,
        per_item=_items(clips, similarity, labels, classes, logit_scale),
        details={
            "classes": classes,
            **_tables(similarity, labels, classes),
            "n_groups": len(set(groups)),
            **details,
        },
        provenance=origin,
    )


def _tables(similarity: Array, labels: Array, classes: list[str]) -> dict[str, Any]:
    """Confusion matrix [true, predicted] and one row a class, with what it is taken for."""
    confusion = metrics.confusion_matrix(labels, similarity.argmax(1), len(classes))
    columns = metrics.per_class(confusion)
    rows = []
    for c, label in enumerate(classes):
        wrong = np.where(np.arange(len(classes)) == c, 0, confusion[c])
        relevant = (labels == c).astype(np.float64)
        rows.append(
            {
                "class": label,
                **{name: float(values[c]) for name, values in columns.items()},
                "average_precision": float(
                    metrics.average_precision(similarity[:, c], relevant)[0]
                ),
                "taken_for": classes[int(wrong.argmax())] if wrong.any() else None,
            }
        )
    return {"confusion": confusion, "per_class": rows}


def _items(
    clips: list[Clip], similarity: Array, labels: Array, classes: list[str], logit_scale: float
) -> dict[str, list[Any]]:
    n = np.arange(len(clips))
    others = similarity.copy()
    others[n, labels] = -np.inf
    return {
        "id": [clip.id for clip in clips],
        "group": [clip.group or clip.id for clip in clips],
        "fold": [clip.fold for clip in clips],
        "label": [classes[i] for i in labels],
        "predicted": [classes[i] for i in similarity.argmax(1)],
        "rank": metrics.true_rank(similarity, labels).tolist(),
        "similarity": similarity[n, labels].tolist(),
        "margin": (similarity[n, labels] - others.max(1)).tolist(),
        "probability": metrics.softmax(similarity, logit_scale)[n, labels].tolist(),
    }
