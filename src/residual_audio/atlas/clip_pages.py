"""Clips: what the model answers, and which parts speak for and against each answer.

The score of an answer is the cosine of the clip's joint embedding with the answer's text. With the
joint head taken by its derivative at this very clip, and the length of the embedding as it is, the
score is a sum: one term for every head, MLP, the patch embedding and the constants, and what the
derivative does not reproduce (nothing but the biases, for a joint head of linear layers and ReLU).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from residual_audio.atlas.class_answers import Answers
from residual_audio.atlas.media import Media
from residual_audio.atlas.packed import bytes_between, floats, rows_of_integers
from residual_audio.direct.contributions import Contributions
from residual_audio.direct.joint_arrays import joint_of
from residual_audio.store import Store
from residual_audio.types import FloatArray

MOST_LETTERS = 90
"""Of a caption, in lists."""
REST = "joint head"
"""The term for what the joint head adds by itself."""


def listing(store: Store, answers: Answers | None, media: Media) -> dict[str, Any]:
    """Columns of all clips, for lists, search and the page of a clip."""
    clips = store.clips
    found: dict[str, Any] = {
        "id": [str(i) for i in clips["id"]],
        "label": [None if v is None else str(v) for v in clips["label"]],
        "fold": [None if v is None else str(v) for v in clips["fold"]],
        "sound": [int(row in media.sounds) for row in range(len(store))],
    }
    firsts = [next(iter(own), None) for own in clips["captions"]]
    if any(firsts):
        found["caption"] = [None if text is None else str(text)[:MOST_LETTERS] for text in firsts]
    if answers is not None:
        best = answers.scores.argmax(1)
        probability = answers.probabilities()
        found["predicted"] = best.tolist()
        found["probability"] = [round(float(probability[i, b]), 4) for i, b in enumerate(best)]
    return found


class ClipPages:
    """What the pages of all clips share."""

    def __init__(
        self, store: Store, answers: Answers | None, contributions: Contributions | None
    ) -> None:
        self._store = store
        self._answers = answers
        self._units = [] if contributions is None else list(contributions)
        self._parts = contributions

    @property
    def units(self) -> list[str]:
        """Names of the terms of a score, in order."""
        return [*self._units, REST] if self._units else []

    def pieces(self, media: Media) -> Iterator[tuple[int, dict[str, Any]]]:
        """Row and page of every clip."""
        terms = self._terms()
        for row in range(len(self._store)):
            piece: dict[str, Any] = {
                "row": row,
                "captions": list(self._store.clips["captions"][row]),
            }
            sound, mel = media.sound(row), media.mel(row)
            if sound is not None:
                piece["sound"] = sound
            if mel is not None:
                low, high = np.quantile(mel, (0.02, 0.998))
                piece["mel"] = bytes_between(mel, float(low), float(high))
            timed = media.times(row)
            if timed is not None:
                piece["times"] = {"asked": timed[0], "curves": floats(timed[1])}
            if self._answers is not None:
                chosen = self._answers.chosen(row)
                piece["answers"] = [[c, float(self._answers.scores[row, c])] for c in chosen]
                if terms:
                    piece["terms"] = rows_of_integers(terms[row])
            yield row, piece

    def _terms(self) -> list[FloatArray]:
        """Of each clip [answer, unit]: terms that sum to the scores of its chosen answers."""
        if self._parts is None or self._answers is None:
            return []
        answers, joint = self._answers, joint_of(self._store)
        latent = np.asarray(self._store.latent(), np.float64)
        length = np.linalg.norm(joint(latent), axis=1)
        chosen = [answers.chosen(row) for row in range(len(latent))]
        pulled = [
            joint.pull(latent[row], answers.texts_of(row)[chosen[row]]) / length[row]
            for row in range(len(latent))
        ]
        found: list[FloatArray] = [np.empty((len(c), len(self._units) + 1)) for c in chosen]
        for u, unit in enumerate(self._units):
            part = np.asarray(self._parts[unit], np.float64)
            for row, directions in enumerate(pulled):
                found[row][:, u] = directions @ part[row]
        for row, terms in enumerate(found):
            terms[:, -1] = answers.scores[row, chosen[row]] - terms[:, :-1].sum(1)
        return found
