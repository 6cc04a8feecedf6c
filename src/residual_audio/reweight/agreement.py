"""How strongly chosen gains are held so that two parts of the clips make the same edit.

A weak ridge fits the clips at hand and another edit to other clips of the same kind: what is then
read from single gains is about the clips. So the same units and gains are fitted on two parts of
the training clips, each without some groups that the other has. Chosen gains begin under a ridge
that has made the edits of folds alike, and it is made stronger for as long as the two parts do not
agree as is demanded. It is not chosen any finer: a ridge that changes from fold to fold makes their
edits differ by itself. Both parts are seen along the same axes; those of other folds are not quite
the same, and their edits a little less alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from residual_audio.reweight.path import StrengthPath
from residual_audio.types import FloatArray

REFITS = (0.7, 1.4, 2.8)
"""Ridges, as shares of the root mean square slope at 1."""


@dataclass(frozen=True)
class Agreement:
    """The ridge that was chosen, and how alike the edits of the two parts are under it."""

    refit: float
    likeness: float
    """May be less than what was demanded, where the strongest ridge does not reach it."""


def other_part(train: np.ndarray, held_out: np.ndarray, groups: Sequence[str]) -> np.ndarray:
    """The held-out clips, and all but as many of the others: whole groups, evenly taken out."""
    names = list(dict.fromkeys(groups[i] for i in train))
    every = max(2, round((len(train) + len(held_out)) / max(len(held_out), 1)) - 1)
    out = set(names[every // 2 :: every])
    left = [i for i in train if groups[i] not in out]
    return np.sort(np.concatenate([np.asarray(left, np.int64), held_out]))


def choose_refit(
    one: StrengthPath, other: StrengthPath, strength: float, sizes: FloatArray, demanded: float
) -> Agreement:
    """The weakest ridge for which the edits of both parts have the cosine that is demanded, or the
    strongest there is.

    `sizes` [gain]: root mean square of what goes through each, in which edits are compared.
    """
    paths = one, other
    chosen = [path.chosen(strength) for path in paths]
    edits = [np.zeros_like(sizes), np.zeros_like(sizes)]

    def under(refit: float) -> Agreement:
        for i, path in enumerate(paths):
            edits[i] = path.refitted(chosen[i], edits[i], refit)
        return Agreement(refit, _cosine(edits[0] * sizes, edits[1] * sizes))

    for refit in REFITS:
        found = under(refit)
        if found.likeness >= demanded:
            break
    return found


def _cosine(a: FloatArray, b: FloatArray) -> float:
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else float("nan")
