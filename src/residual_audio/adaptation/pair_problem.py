"""An adaptation problem of sounds with labels, or with captions of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from residual_audio.adaptation.caption_problem import caption_problem, captions_of
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.errors import InputError
from residual_audio.judge.of_store import clips_of
from residual_audio.passes.kept import Passes
from residual_audio.store import Store
from residual_audio.types import FloatArray


@dataclass(frozen=True)
class PairProblem:
    """A problem, and what counts as right in it."""

    problem: Problem
    by: Literal["labels", "captions"]

    def candidates(self, test: np.ndarray) -> np.ndarray:
        """[text] which texts the clips of a test part are held against: every class, or all
        captions of that part."""
        positive = self.problem.judge.positive.numpy()
        if self.by == "labels":
            return np.ones(positive.shape[1], bool)
        return np.asarray(positive[test].any(0))

    def n_candidates(self, test: np.ndarray) -> float:
        """Texts to choose from for each that is right."""
        positive = self.problem.judge.positive.numpy()[test][:, self.candidates(test)]
        return float(positive.shape[1] / positive.sum(1).mean())

    def hits(self, scores: FloatArray, test: np.ndarray) -> FloatArray:
        """[clip] 1 where the best right text beats every wrong one; a tie is a failure."""
        some = self.candidates(test)
        positive = self.problem.judge.positive.numpy()[test][:, some]
        right = np.where(positive, scores[:, some], -np.inf).max(1)
        wrong = np.where(positive, -np.inf, scores[:, some]).max(1)
        return (right > wrong).astype(np.float64)


def pair_problem(store: Store, passes: Passes) -> PairProblem:
    """By label where every clip has one; else by caption, where every clip has one."""
    clips = clips_of(store)
    if all(clip.label is not None for clip in clips):
        return PairProblem(problem_of(store, passes=passes), "labels")
    without = [clip.id for clip in clips if not captions_of(clip)]
    if without:
        raise InputError(
            f"'{without[0]}' has neither label nor caption ({len(without)} of {len(clips)} clips "
            "have no caption): give every file a label, or every file a caption"
        )
    return PairProblem(caption_problem(store, np.arange(len(clips)), passes=passes), "captions")
