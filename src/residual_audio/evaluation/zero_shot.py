"""Zero-shot classification: the class whose prompt is nearest. Nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from residual_audio import provenance
from residual_audio.data.base import Dataset
from residual_audio.embeddings.embedder import DEFAULT, EmbeddingSettings, JointEmbedder
from residual_audio.embeddings.of_dataset import embed_clips
from residual_audio.embeddings.prompts import Prompts, embed_classes
from residual_audio.errors import DatasetError, StoreError
from residual_audio.evaluation.clip_notes import N_RESAMPLES
from residual_audio.metrics import classification as metrics
from residual_audio.metrics import uncertainty
from residual_audio.metrics.calibration import calibration, expected_calibration_error
from residual_audio.models.training_data import heard_before
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.store.by_clip import by_clip
from residual_audio.types import Clip, HeardBefore, Result, Score

Array = npt.NDArray[Any]


def similarities(audio: Array, text: Array) -> Array:
    """Cosines [clip, class] of unit vectors."""
    return np.asarray(audio, np.float64) @ np.asarray(text, np.float64).T


def score_classes(
    similarity: Array,
    labels: Array,
    *,
    groups: Sequence[str] | None = None,
    logit_scale: float | Array = 1.0,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
) -> tuple[Score, ...]:
    """Scores of similarities [clip, class]; the temperature is one, or one a clip [clip, 1]."""
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
        "ece": lambda w: expected_calibration_error(probabilities, labels, counts=w),
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
    return tuple(scores)


@dataclass(frozen=True)
class LabelledVectors:
    """Clips against classes: what scores of answers are made of."""

    model: str
    dataset: str
    similarity: Array
    """[clip, class], cosines."""
    clips: Sequence[Clip]
    classes: Sequence[str]
    logit_scale: float | Array
    """Of all clips, or of each [clip, 1]."""
    classes_are: Mapping[str, Any]
    """What stands for a class: prompts, or centroids."""
    skipped: Mapping[str, str]
    remarks: Mapping[str, str]
    """Clips that can hardly be heard, and in what way."""
    heard_before: HeardBefore | None = None
    """How many of the clips the model was trained on."""

    def labels(self) -> Array:
        """Number of each clip's class; clips without one of the classes are an error."""
        number = {label: i for i, label in enumerate(self.classes)}
        unknown = [clip.id for clip in self.clips if clip.label not in number]
        if unknown:
            raise DatasetError(
                f"{len(unknown)} clips of {self.dataset} have no label among its classes, the "
                f"first is '{unknown[0]}': scores of answers need labelled clips"
            )
        return np.array([number[clip.label or ""] for clip in self.clips])


def evaluate_zero_shot(
    model: JointEmbedder,
    dataset: Dataset,
    prompts: Prompts,
    *,
    split: str = "all",
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    embedding: EmbeddingSettings = DEFAULT,
    progress: Progress = SILENT,
) -> Result:
    """Zero-shot scores of one model on one labelled data set."""
    classes = list(dataset.classes)
    if len(classes) < 2:
        raise DatasetError(
            f"{dataset.name} has {len(classes)} classes: zero-shot classification needs two or more"
        )
    text = embed_classes(model, classes, prompts)
    embedded = embed_clips(model, dataset, embedding, progress=progress)
    by_id = {clip.id: clip for clip in dataset.clips}
    vectors = LabelledVectors(
        provenance.model_label(model), dataset.name, similarities(embedded.vectors, text),
        [by_id[name] for name in embedded.ids], classes, float(model.logit_scale), said(prompts),
        embedded.skipped, embedded.remarks,
        heard_before(model.trained_on, dataset),
    )  # fmt: skip
    record = provenance.collect(
        model=model,
        dataset=dataset,
        seed=seed,
        prompts=prompts.templates,
        long=embedding.long,
        intervals=uncertainty.how_made(n_resamples),
    )
    return result_of(vectors, record, split=split, seed=seed, n_resamples=n_resamples)


def said(prompts: Prompts) -> dict[str, Any]:
    """Prompts as a result tells them."""
    return {"prompts": {"name": prompts.name, "templates": list(prompts.templates)}}


def evaluate_store(
    store: Store, *, split: str = "all", seed: int = 0, n_resamples: int = N_RESAMPLES
) -> Result:
    """The same from a store: embeddings and class prompts were kept, so no model is loaded. Of a
    clip that was heard in windows the mean of their vectors answers."""
    store = by_clip(store)
    text = store.class_embeddings()
    if text is None:
        raise StoreError(
            "this store was made with an audio-only model: it has no class prompts; judge it by "
            "centroids"
        )
    names = ("id", "label", "fold", "group")
    rows = zip(*(store.clips[name] for name in names), strict=True)
    vectors = LabelledVectors(
        store.model_info.name, store.dataset_info.name, similarities(store.embedding(), text),
        [Clip(id=i, label=label, fold=fold, group=group) for i, label, fold, group in rows],
        list(store.classes), store.logit_scale, said(Prompts("store", (store.template,))),
        store.skipped, store.remarks,
        store.heard_before,
    )  # fmt: skip
    record = provenance.collect(
        seed=seed,
        store=store.asked,
        intervals=uncertainty.how_made(n_resamples),
    )
    return result_of(vectors, record, split=split, seed=seed, n_resamples=n_resamples)


def result_of(
    vectors: LabelledVectors,
    record: Mapping[str, object],
    *,
    task: str = "zero-shot",
    split: str,
    seed: int,
    n_resamples: int,
) -> Result:
    """Scores, a row a clip and a row a class."""
    labels, similarity = vectors.labels(), vectors.similarity
    groups = [clip.group or clip.id for clip in vectors.clips]
    scores = score_classes(
        similarity, labels, groups=groups, logit_scale=vectors.logit_scale,
        seed=seed, n_resamples=n_resamples,
    )  # fmt: skip
    probabilities = metrics.softmax(similarity, vectors.logit_scale)
    confusion = metrics.confusion_matrix(labels, similarity.argmax(1), len(vectors.classes))
    return Result(
        task=task,
        model=vectors.model,
        dataset=vectors.dataset,
        split=split,
        scores=scores,
        per_item=_items(vectors, similarity, labels),
        details={
            "classes": list(vectors.classes),
            "confusion": confusion,
            "per_class": _class_rows(similarity, labels, confusion, vectors.classes),
            "n_groups": len(set(groups)),
            "calibration": asdict(calibration(probabilities, labels, seed=seed)),
            **vectors.classes_are,
            "skipped": dict(vectors.skipped),
            "remarks": dict(vectors.remarks),
            "heard_before": vectors.heard_before,
        },
        provenance=record,
    )


def _class_rows(
    similarity: Array, labels: Array, confusion: Array, classes: Sequence[str]
) -> list[dict[str, str | float | None]]:
    """One row a class, with what it is taken for; `confusion` is [true, predicted]."""
    columns = metrics.per_class(confusion)
    rows: list[dict[str, str | float | None]] = []
    for c, label in enumerate(classes):
        wrong = np.where(np.arange(len(classes)) == c, 0, confusion[c])
        precision = metrics.average_precision(similarity[:, c], (labels == c).astype(np.float64))
        rows.append(
            {
                "class": label,
                **{name: float(values[c]) for name, values in columns.items()},
                "average_precision": float(precision[0]),
                "taken_for": classes[int(wrong.argmax())] if wrong.any() else None,
            }
        )
    return rows


def _items(vectors: LabelledVectors, similarity: Array, labels: Array) -> dict[str, list[Any]]:
    """One row a clip."""
    clips, classes = vectors.clips, vectors.classes
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
        "probability": metrics.softmax(similarity, vectors.logit_scale)[n, labels].tolist(),
    }
