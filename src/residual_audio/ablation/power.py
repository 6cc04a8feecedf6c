"""What an ablation of so many clips could have shown, and what it did show.

Three answers that change in one direction have a sign test of p = 2/8 among any number of clips: no
interval of theirs clears 0. So "nothing is clear of 0" says little by itself; beside it belongs the
smallest change that these clips can show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from residual_audio.ablation.effects import Effects
from residual_audio.metrics.few_groups import variance_of_mean
from residual_audio.metrics.uncertainty import fdr, n_groups, sign_flip
from residual_audio.types import FloatArray

LEVEL = 0.05
POWER = 0.8
TESTED = ("correct", "margin")


@dataclass(frozen=True)
class Power:
    """Of one study of units on the same clips."""

    n_clips: int
    n_groups: int
    n_units: int
    flips: int
    """Answers that must change in one direction, in different groups, for p ≤ 0.05."""
    flips_of_many: int
    """The same for one unit among all of these (Bonferroni)."""
    margin: float
    """Change of the mean margin that is found in 80% of studies like this; median over units."""
    clear: int
    """Units whose change of the margin has q ≤ 0.05."""

    def sentence(self) -> str:
        """For the notes of a table."""
        of = f"{self.n_clips} clips in {self.n_groups} groups"
        smallest = f"{self.flips / self.n_clips:.1%} ({self.flips} answers one way)"
        among = f"{self.flips_of_many / self.n_clips:.1%} among {self.n_units}"
        return (
            f"the smallest change that {of} can show: accuracy {smallest} for one unit, {among}; "
            f"margin {self.margin:.2g} (80% power, the median unit); "
            f"{self.clear} of {self.n_units} units change it with q ≤ {LEVEL:g}"
        )


def changes_tested(
    effects: Effects, groups: Sequence[str] | None = None, seed: int = 0
) -> dict[str, FloatArray]:
    """`p_…` and `q_…` [unit] of the changes of answers and margins: sign flips of whole groups,
    false discovery rate over the units."""
    out: dict[str, FloatArray] = {}
    for measure in (m for m in TESTED if m in effects.after):
        p = sign_flip(effects.delta(measure).T, groups=groups, seed=seed)
        out |= {f"p_{measure}": p, f"q_{measure}": fdr(p)}
    return out


def power(effects: Effects, groups: Sequence[str] | None, q: FloatArray | None) -> Power:
    """From the spread of these very changes; `q` of the margins, where they were tested."""
    measure = "margin" if "margin" in effects.after else next(iter(effects.after))
    delta = effects.delta(measure).T  # clip, unit
    independent = n_groups(len(delta), groups)
    _, variance, _ = variance_of_mean(delta, groups)
    df = max(independent - 1, 1)
    reach = stats.t.ppf(1 - LEVEL / 2, df) + stats.t.ppf(POWER, df)
    return Power(
        len(delta),
        independent,
        delta.shape[1],
        needed_flips(LEVEL),
        needed_flips(LEVEL / delta.shape[1]),
        float(reach * np.sqrt(np.median(variance))),
        0 if q is None else int((q <= LEVEL).sum()),
    )


def needed_flips(level: float) -> int:
    """The fewest changes in one direction whose sign test reaches `level`: 2 · 2⁻ᵏ ≤ level.

    >>> needed_flips(0.05), needed_flips(0.05 / 184)
    (6, 13)
    """
    return math.ceil(1 - math.log2(level))
