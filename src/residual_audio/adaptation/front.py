"""The front: what is gained here, against what is lost elsewhere, against the size of the edit.

Every family of edits is followed from nothing to all of it, on grouped folds: by the strength with
which references are held in place, by the largest gain, and by blending finished gains with the
identity. Nothing is chosen: all points are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch

from residual_audio.adaptation.divisions import Division, Split, splits_of
from residual_audio.adaptation.methods.in_encoder import lesson_of
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.references import reference_costs, references_of
from residual_audio.data.splits import Folds
from residual_audio.metrics.classification import true_rank
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.edit_size import edit_size
from residual_audio.reweight.gains import blend
from residual_audio.reweight.keep_in_place import STRENGTHS, held_in
from residual_audio.reweight.path import DEFAULT_STRENGTH, StrengthPath
from residual_audio.reweight.terms import apply_direct
from residual_audio.types import Gains

BLENDS = (0.1, 0.25, 0.5, 0.75, 1.0)
LARGEST = (1.5, 2.0, 4.0, 8.0, 16.0)


class FrontPoint(TypedDict):
    """One edit: means over folds."""

    family: str
    setting: float
    """Strength of the hold, largest gain, or amount of the blend."""
    top1: float
    zero_shot: float
    lost: float
    """Accuracy lost on held-out reference clips."""
    lost_error: float
    energy: float
    distance: float
    units_moved: float
    n: int


@dataclass(frozen=True)
class FrontFamily:
    """Edits that one number leads through."""

    name: str
    edits: Callable[[Problem, Split], dict[float, Gains]]


def held(keep: Sequence[str]) -> FrontFamily:
    """Unbounded gains, the references held more and more loosely."""

    def edits(problem: Problem, split: Split) -> dict[float, Gains]:
        method = ResiDual(unbounded=True)
        terms, lesson = method.terms(problem, split), lesson_of(problem, split)
        loss = lesson.loss(terms, problem.head, split.train)
        here = held_in(references_of(keep, problem), terms, problem.head)
        anchors = [one.anchor(one.reference.fit, "answers") for one in here]
        path: StrengthPath | None = None
        out = {}
        for hold in STRENGTHS:
            path = StrengthPath(loss.holding(anchors, hold), method.regularity, path)
            x = path.at(FRONT_STRENGTH).x
            out[hold] = terms.gains(torch.from_numpy(1.0 + x).float(), problem.about)
        return out

    return FrontFamily("references held", edits)


FRONT_STRENGTH = 1e-2
"""Of the ridge under the hold, as a share of the one that lets nothing move."""


def bounded() -> FrontFamily:
    """Few gains within wider and wider bounds."""

    def edits(problem: Problem, split: Split) -> dict[float, Gains]:
        out = {}
        for largest in LARGEST:
            method = ResiDual(bounds=(0.0, largest))
            terms = method.terms(problem, split)
            loss = lesson_of(problem, split).loss(terms, problem.head, split.train)
            x = StrengthPath(loss, method.regularity).at(DEFAULT_STRENGTH["group"]).x
            values = torch.from_numpy(1.0 + x).float().clamp(0.0, largest)
            out[largest] = terms.gains(values, problem.about)
        return out

    return FrontFamily("largest gain", edits)


def blended(name: str, method: ResiDual) -> FrontFamily:
    """Finished gains between the identity and all of them."""

    def edits(problem: Problem, split: Split) -> dict[float, Gains]:
        gains = method.fit(problem, split).gains
        assert gains is not None
        return {amount: blend(gains, amount) for amount in BLENDS}

    return FrontFamily(f"blend of {name}", edits)


def families(keep: Sequence[str]) -> list[FrontFamily]:
    """What the front shows."""
    return [
        held(keep),
        bounded(),
        blended("unbounded", ResiDual(unbounded=True)),
        blended("learned axes", ResiDual(axes="learned")),
    ]


def front(
    problem: Problem,
    folds: Folds,
    keep: Sequence[str],
    *,
    how: Division | None = None,
    among: Sequence[FrontFamily] | None = None,
    progress: Progress = SILENT,
) -> list[FrontPoint]:
    """Every point of every family, scored on the test parts and on held-out reference clips."""
    references = references_of(keep, problem)
    found: dict[tuple[str, float], list[FrontPoint]] = {}
    for split in splits_of(problem, folds, how):
        chosen = families(keep) if among is None else among
        progress.step(f"fold {split.name}", len(chosen), "families")
        before = _top1(problem, split, problem.joint[split.test])
        for family in chosen:
            for setting, gains in family.edits(problem, split).items():
                with torch.no_grad():
                    latent = torch.from_numpy(apply_direct(problem.direct, gains)[split.test])
                    after = _top1(problem, split, problem.from_latent(latent).numpy())
                costs = reference_costs(gains, references, problem, held_out=True)
                size = edit_size(gains)
                point: FrontPoint = {
                    "family": family.name,
                    "setting": setting,
                    "top1": after,
                    "zero_shot": before,
                    "lost": float(np.mean([cost.lost for cost in costs])),
                    "lost_error": float(np.mean([cost.error for cost in costs])),
                    "energy": size["energy"],
                    "distance": size["distance"],
                    "units_moved": float(size["units_moved"]),
                    "n": len(split.test),
                }
                found.setdefault((family.name, setting), []).append(point)
            progress.advance()
        problem.forget()
    return [_mean(points) for points in found.values()]


def _top1(problem: Problem, split: Split, joint: np.ndarray) -> float:
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
        "energy": mean([p["energy"] for p in points]),
        "distance": mean([p["distance"] for p in points]),
        "units_moved": mean([p["units_moved"] for p in points]),
        "n": int(n.sum()),
    }
