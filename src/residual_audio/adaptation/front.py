"""The front: what is gained here, against what is lost elsewhere, against the size of the edit.

Every family of edits is followed from nothing to all of it, on grouped folds: by the strength with
which references are held in place, by the largest gain, and by blending finished gains, maps and
updates with the identity. Nothing is chosen: all points are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from residual_audio.adaptation.divisions import Division, Split, splits_of
from residual_audio.adaptation.front_edits import FrontEdit, FrontFamily, families
from residual_audio.adaptation.methods.choice import unit_length
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.references import Elsewhere, cost_there
from residual_audio.data.splits import Folds
from residual_audio.metrics.classification import true_rank
from residual_audio.progress import SILENT, Progress
from residual_audio.types import FloatArray


class FrontPoint(TypedDict):
    """One edit: means over folds. What has no gains has neither energy, distance nor units."""

    family: str
    setting: float
    """Strength of the hold, largest gain, or amount of the blend."""
    top1: float
    zero_shot: float
    lost: float
    """Accuracy lost on held-out reference clips."""
    lost_error: float
    shift: float
    """How far the tested clips' embeddings go: mean of 1 − cosine."""
    energy: float
    distance: float
    units_moved: float
    n: int


def front(
    problem: Problem,
    folds: Folds,
    elsewhere: Sequence[Elsewhere],
    *,
    how: Division | None = None,
    among: Sequence[FrontFamily] | None = None,
    progress: Progress = SILENT,
) -> list[FrontPoint]:
    """Every point of every family, scored on the test parts and on held-out reference clips.

    Families that run the encoder are among them where the problem and the references have it.
    """
    network = all(p.streams is not None for p in (problem, *(one.problem for one in elsewhere)))
    chosen = families([one.run for one in elsewhere], network) if among is None else among
    found: dict[tuple[str, float], list[FrontPoint]] = {}
    for split in splits_of(problem, folds, how):
        progress.step(f"fold {split.name}", len(chosen), "families")
        here = problem.on(split.fit, split.held_out)
        for family in chosen:
            for setting, edit in family.edits(here, split).items():
                point = _point(here, split, elsewhere, family.name, setting, edit)
                found.setdefault((family.name, setting), []).append(point)
            progress.advance()
        problem.forget()
    return [_mean(points) for points in found.values()]


def _point(
    problem: Problem,
    split: Split,
    elsewhere: Sequence[Elsewhere],
    family: str,
    setting: float,
    edit: FrontEdit,
) -> FrontPoint:
    before, after = problem.joint[split.test], edit.embed(problem, split.test)
    costs = [cost_there(one, edit.embed, one.held_out) for one in elsewhere]
    return {
        "family": family,
        "setting": setting,
        "top1": _top1(problem, split, after),
        "zero_shot": _top1(problem, split, before),
        "lost": float(np.mean([cost.lost for cost in costs])),
        "lost_error": float(np.mean([cost.error for cost in costs])),
        "shift": float((1.0 - (unit_length(before) * unit_length(after)).sum(1)).mean()),
        "energy": edit.energy,
        "distance": edit.distance,
        "units_moved": edit.units_moved,
        "n": len(split.test),
    }


def _top1(problem: Problem, split: Split, joint: FloatArray) -> float:
    rank = true_rank(problem.scores(joint), problem.codes[split.test])
    return float((rank == 1).mean())


def _mean(points: Sequence[FrontPoint]) -> FrontPoint:
    """Over folds, each counting by its clips."""
    n = np.array([point["n"] for point in points], np.float64)

    def mean(values: Sequence[float]) -> float:
        return float((n * np.array(values)).sum() / n.sum())

    first = points[0]
    return {
        "family": first["family"],
        "setting": first["setting"],
        "top1": mean([p["top1"] for p in points]),
        "zero_shot": mean([p["zero_shot"] for p in points]),
        "lost": mean([p["lost"] for p in points]),
        "lost_error": mean([p["lost_error"] for p in points]),
        "shift": mean([p["shift"] for p in points]),
        "energy": mean([p["energy"] for p in points]),
        "distance": mean([p["distance"] for p in points]),
        "units_moved": mean([p["units_moved"] for p in points]),
        "n": int(n.sum()),
    }
