"""Questionnaires of people who worked with a system: scores and reliability.

Conventions: `answers` [person, item] as given on the form, NaN where left blank; scores [person].

    SUS     10 items, 1–5; odd items count x − 1, even ones 5 − x; sum × 2.5 → 0–100 (Brooke 1996)
    UEQ-S   8 items, 1–7 → −3 … +3; pragmatic = items 1–4, hedonic = items 5–8 (Schrepp et al. 2017)
    CSI     6 factors of two items, 0–10, each weighed by how often its factor was preferred in the
            15 pairs: Σ (item + item) × count / 3 → 0–100 (Cherry & Latulipe 2014)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from residual_audio.errors import InputError

Array = npt.NDArray[Any]

CSI_FACTORS = (
    "results_worth_effort", "exploration", "collaboration", "immersion", "expressiveness",
    "enjoyment",
)  # fmt: skip
CSI_PAIRS = 15


def _checked(answers: Array, n_items: int, low: float, high: float, name: str) -> Array:
    x = np.asarray(answers, dtype=np.float64)
    if x.ndim != 2 or x.shape[1] != n_items:
        raise InputError(f"{name} has {n_items} items a person, not {x.shape}")
    outside = np.argwhere((x < low) | (x > high))
    if len(outside):
        person, item = outside[0]
        raise InputError(
            f"{name}: the answer {x[person, item]:g} of person {person + 1} to item {item + 1} is "
            f"outside {low:g} to {high:g}"
        )
    return x


def sus(answers: Array) -> Array:
    """System Usability Scale, 0–100; NaN for a person who left an item blank.

    >>> sus([[5, 1] * 5, [3] * 10]).tolist()
    [100.0, 50.0]
    """
    x = _checked(answers, 10, 1, 5, "SUS")
    counted = np.where(np.arange(10) % 2 == 0, x - 1, 5 - x)
    return counted.sum(1) * 2.5


def ueq_s(answers: Array) -> dict[str, Array]:
    """Short User Experience Questionnaire: pragmatic, hedonic, overall, −3 … +3."""
    x = _checked(answers, 8, 1, 7, "UEQ-S") - 4
    return {"pragmatic": x[:, :4].mean(1), "hedonic": x[:, 4:].mean(1), "overall": x.mean(1)}


def csi(answers: Array, counts: Array) -> Array:
    """Creativity Support Index, 0–100: `answers` [person, 12] by factor, `counts` [person, 6]."""
    x = _checked(answers, 12, 0, 10, "CSI")
    weights = _checked(counts, 6, 0, 5, "CSI counts")
    wrong = np.flatnonzero(np.abs(weights.sum(1) - CSI_PAIRS) > 1e-9)
    if len(wrong):
        raise InputError(
            f"CSI: the counts of person {wrong[0] + 1} sum to {weights[wrong[0]].sum():g}, there "
            f"are {CSI_PAIRS} pairs of factors"
        )
    return (x.reshape(-1, 6, 2).sum(2) * weights).sum(1) / 3


@dataclass(frozen=True, slots=True)
class Reliability:
    """Cronbach's α with Feldt's 95% interval."""

    alpha: float
    low: float
    high: float
    n_people: int
    n_items: int


def cronbach_alpha(answers: Array, level: float = 0.95) -> Reliability:
    """k/(k−1) (1 − Σ var(item) / var(sum)), of people who answered all items.

    Items must point one way: reverse the others first. NaN below two people or items.

    >>> round(cronbach_alpha(np.array([[1, 2], [2, 3], [3, 5.0]])).alpha, 3)
    0.923
    """
    x = np.asarray(answers, dtype=np.float64)
    x = x[~np.isnan(x).any(1)]
    n, k = x.shape
    if n < 2 or k < 2 or not x.sum(1).var(ddof=1) > 0:
        return Reliability(math.nan, math.nan, math.nan, n, k)
    alpha = k / (k - 1) * (1 - x.var(axis=0, ddof=1).sum() / x.sum(1).var(ddof=1))
    tail = (1 - level) / 2
    # (1 − α) / (1 − α̂) is F with (n − 1), (n − 1)(k − 1) degrees of freedom (Feldt 1965)
    f = stats.f.ppf([1 - tail, tail], n - 1, (n - 1) * (k - 1))
    low, high = 1 - (1 - alpha) * f
    return Reliability(float(alpha), float(low), float(high), n, k)


def one_way(answers: Array, questionnaire: str) -> Array:
    """Answers with SUS's even items turned round, as α needs them."""
    x = np.asarray(answers, dtype=np.float64)
    return np.where(np.arange(x.shape[1]) % 2 == 0, x, 6 - x) if questionnaire == "sus" else x
