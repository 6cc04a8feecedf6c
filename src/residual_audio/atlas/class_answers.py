"""What the model answers: cosines of all clips with what stands for each class.

A class is its text. Where the model has no text side it is the mean direction of its clips in
other folds, as `evaluate` has it: no clip is judged by itself or by its own recording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from residual_audio.errors import ResidualAudioError
from residual_audio.judge.of_store import centroid_judge, classes_with_clips
from residual_audio.store import Store
from residual_audio.types import FloatArray

N_ANSWERS = 5
Codes = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Answers:
    """Cosines of all clips with all classes."""

    classes: tuple[str, ...]
    labels: list[str | None]
    scores: FloatArray
    """[clip, class]"""
    scale: float
    texts: FloatArray
    """[fold, class, joint], unit length; one fold where classes are texts."""
    folds: Codes
    """[clip]: whose classes it is judged by."""
    by: Literal["texts", "centroids"] = "texts"

    @property
    def codes(self) -> Codes:
        """Class number of each clip's label; −1 for none."""
        place = {name: i for i, name in enumerate(self.classes)}
        return np.array([place.get(str(label), -1) for label in self.labels], np.int64)

    def chosen(self, row: int) -> list[int]:
        """The first answers, and the right one if it is not among them."""
        found = np.argsort(-self.scores[row], kind="stable")[:N_ANSWERS].tolist()
        right = int(self.codes[row])
        return found if right < 0 or right in found else [*found, right]

    def texts_of(self, row: int) -> FloatArray:
        """[class, joint] as this clip is judged."""
        return self.texts[self.folds[row]]

    def cosines(self, joint: FloatArray) -> FloatArray:
        """[clip, class] of other embeddings of the same clips."""
        unit = _unit(joint)
        found = np.empty((len(unit), len(self.classes)))
        for fold, texts in enumerate(self.texts):
            here = self.folds == fold
            found[here] = unit[here] @ texts.T
        return found

    def probabilities(self) -> FloatArray:
        logits = self.scale * self.scores
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)


def answers_of(store: Store) -> Answers | None:
    """Answers by class text, or by centroids of classes; None where there is neither."""
    if len(store.classes) < 2:
        return None
    labels = [None if label is None else str(label) for label in store.clips["label"]]
    texts = store.class_embeddings()
    if texts is None:
        return _by_centroids(store, labels)
    unit = _unit(texts)
    scores = np.asarray(store.embedding(), np.float64) @ unit.T
    folds = np.zeros(len(labels), np.int64)
    return Answers(store.classes, labels, scores, store.logit_scale, unit[None], folds)


def _by_centroids(store: Store, labels: list[str | None]) -> Answers | None:
    try:
        judge = centroid_judge(store)
    except ResidualAudioError:  # no labels, or a class whose clips are all of one recording
        return None
    classes = classes_with_clips(store)
    n = len(classes)
    texts = np.asarray(judge.texts.numpy(), np.float64)
    assert judge.candidates is not None  # of a judge by centroids
    first = judge.candidates.numpy().argmax(1)  # clip: its fold's classes stand together
    texts, folds = texts.reshape(-1, n, texts.shape[1]), first // n
    made = Answers(classes, labels, np.empty((0, n)), judge.scale, texts, folds, "centroids")
    return replace(made, scores=made.cosines(np.asarray(store.embedding(), np.float64)))


def _unit(vectors: FloatArray) -> FloatArray:
    rows = np.asarray(vectors, np.float64)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
