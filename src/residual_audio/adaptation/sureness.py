"""Whether a method that says 70% is right 70% of the time, before and after adaptation."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from residual_audio.adaptation.comparison import Outcome
from residual_audio.adaptation.methods.linear_probe import LinearProbe
from residual_audio.adaptation.problem import Problem
from residual_audio.metrics.calibration import calibration
from residual_audio.metrics.classification import softmax
from residual_audio.types import FloatArray


class Sureness(TypedDict, total=False):
    """The expected calibration error of the first seed's answers on test parts."""

    ece: float
    ece_null: float
    """What a calibrated method with the same confidences would read, by noise alone."""
    ece_null_high: float
    """95% of such methods stay below it."""


def sureness(problem: Problem, outcome: Outcome, seed: int = 0) -> Sureness:
    """Of a method that was fitted on every fold."""
    tested = ~np.isnan(outcome.scores[0, :, 0])
    found = calibration(_probabilities(problem, outcome)[tested], problem.codes[tested], seed=seed)
    return {"ece": found.error, "ece_null": found.null, "ece_null_high": found.null_high}


def _probabilities(problem: Problem, outcome: Outcome) -> FloatArray:
    """[clip, class]; cosines at the model's own temperature, a probe's answers as they are."""
    scores = outcome.scores[0]
    if isinstance(outcome.entry.method, LinearProbe):
        return scores
    return softmax(scores, problem.judge.scale)
