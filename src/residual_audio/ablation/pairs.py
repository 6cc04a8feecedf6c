"""Two units at once: do they cover for each other?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from residual_audio.ablation.effects import Effects
from residual_audio.types import Unit


@dataclass(frozen=True)
class Interaction:
    """Importance of two units together, against the sum of their own."""

    a: str
    b: str
    together: float
    sum: float
    interaction: float
    """together − sum"""


def pairs_of(units: Sequence[Unit]) -> list[Unit]:
    """Every two of these units together."""
    return [a | b for a, b in combinations(units, 2)]


def interactions(single: Effects, pairs: Effects, measure: str = "margin") -> list[Interaction]:
    """For each pair, importance together less the sum of its parts.

    Positive: each covers for the other, so they must not go together. Negative: they overlap in
    what they do harm or good to, and the second costs less once the first is gone.
    """
    alone = dict(zip(single.units, single.importance(measure), strict=True))
    rows = []
    for name, together in zip(pairs.units, pairs.importance(measure), strict=True):
        a, b = name.split("+")
        rows.append(
            Interaction(
                a,
                b,
                together=float(together),
                sum=float(alone[a] + alone[b]),
                interaction=float(together - alone[a] - alone[b]),
            )
        )
    return sorted(rows, key=lambda row: -abs(row.interaction))
