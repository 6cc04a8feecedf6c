"""What bounded gains reach, against how many units move, against how alike the edits of folds are.

The default takes one point of this plane; here all of a grid are shown, and nothing is chosen.
"""

from __future__ import annotations

from typing import TypedDict

from residual_audio.adaptation.comparison import compare
from residual_audio.adaptation.divisions import Division
from residual_audio.adaptation.methods.registry import REFERENCE, Entry
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.methods.unadapted import ZeroShot
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.verdicts import verdicts
from residual_audio.data.splits import Folds
from residual_audio.progress import SILENT, Progress

SHARES = (0.16, 0.32, 0.64, 1.0)
RIDGES = (0.1, 0.5, 2.0)


class TradePoint(TypedDict):
    """Gains of a share of the units, held by a ridge."""

    share: float
    ridge: float
    top1: float
    gain: float
    """Over zero-shot, paired, with its 95% interval over groups."""
    gain_low: float
    gain_high: float
    units_moved: float
    stability: float
    energy: float
    n: int


def trade(
    problem: Problem,
    folds: Folds,
    bounds: tuple[float, float] | None = None,
    how: Division | None = None,
    progress: Progress = SILENT,
) -> list[TradePoint]:
    """Every share of the units under every ridge, on all folds; without `bounds`, readable ones."""
    grid = {f"{s:g}-{r:g}": (s, r) for s in SHARES for r in RIDGES}
    entries = [Entry(REFERENCE, REFERENCE, "reference", ZeroShot())]
    for key, (share, ridge) in grid.items():
        method = ResiDual(share=share, ridge=ridge, bounds=bounds)
        entries.append(Entry(key, key, "residual", method))
    how = Division() if how is None else how
    outcomes = compare(problem, folds, entries, seeds=(how.seed,), how=how, progress=progress)
    rows = verdicts(problem, folds, outcomes, seed=how.seed)
    return [
        {
            "share": grid[row["key"]][0],
            "ridge": grid[row["key"]][1],
            "top1": row["top1"],
            "gain": row["gain"],
            "gain_low": row["gain_low"],
            "gain_high": row["gain_high"],
            "units_moved": row["units_moved"],
            "stability": row["stability"],
            "energy": row["energy"],
            "n": row["n"],
        }
        for row in rows
        if row["key"] in grid
    ]
