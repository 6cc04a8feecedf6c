"""Runs of other data whose answers an adaptation is to leave as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.synthetic_reference import with_synthetic
from residual_audio.data.splits import grouped_split
from residual_audio.errors import InputError
from residual_audio.judge.of_store import rows_of
from residual_audio.passes.kept import Passes
from residual_audio.reweight.cached import Streams
from residual_audio.reweight.keep_in_place import Cost, Reference, cost_of
from residual_audio.store import open_store
from residual_audio.types import FloatArray

HELD_OUT = 1 / 3


@dataclass(frozen=True)
class Elsewhere:
    """Clips of another run of the same model, as a problem of their own."""

    run: str
    """As it was asked for: `RUN`, or folds of it (`RUN#1,2,3`)."""
    name: str
    problem: Problem
    fit: np.ndarray
    held_out: np.ndarray
    """Whole groups, on which a loss is measured."""


@lru_cache(maxsize=8)
def elsewhere_of(run: str) -> Elsewhere:
    """The clips of `RUN`, or of folds of it (`RUN#1,2,3`)."""
    path, _, folds = run.partition("#")
    store = open_store(path)
    problem = problem_of(store, rows_of(store, folds.split(",") if folds else None))
    held = grouped_split(problem.clips, HELD_OUT)
    everyone = np.arange(len(problem))
    name = problem.about["dataset"]["name"] + (f" {folds}" if folds else "")
    fit, held_out = everyone[~held], everyone[held]
    return Elsewhere(run, name, problem.on(fit, held_out), fit, held_out)


def elsewhere(runs: Sequence[str], problem: Problem) -> list[Elsewhere]:
    """Reference runs for a problem (`synthetic`: the bundled sounds); a run of another model is
    refused."""
    hearing = None if problem.streams is None else problem.streams.passes.model
    found = [elsewhere_of(run) for run in with_synthetic(runs, problem.about["model"], hearing)]
    for one in found:
        model = one.problem.about["model"].get("sha256")
        if model != problem.about["model"].get("sha256"):
            raise InputError(f"'{one.run}' is a run of another model than the one that is adapted")
    return found


def heard(places: Sequence[Elsewhere], hear: Callable[[str], Passes] | None) -> list[Elsewhere]:
    """The same with their clips ready to be run through the model, where `hear` can do that."""
    if hear is None:
        return list(places)
    return [
        replace(one, problem=replace(one.problem, streams=Streams(hear(one.run)))) for one in places
    ]


def references_of(runs: Sequence[str], problem: Problem) -> tuple[Reference, ...]:
    """The same as what gains on the direct path can be held by."""
    return tuple(
        Reference(
            one.name,
            one.problem.direct,
            one.problem.judge,
            one.fit,
            one.held_out,
            one.problem.groups,
        )
        for one in elsewhere(runs, problem)
    )


def cost_there(
    one: Elsewhere, embed: Callable[[Problem, np.ndarray], FloatArray], rows: np.ndarray
) -> Cost:
    """What an adapted model loses on clips of a reference; `embed` gives their embeddings."""
    there = one.problem
    joints = (
        torch.from_numpy(there.joint[rows]),
        torch.as_tensor(embed(there, rows), dtype=torch.float32),
    )
    groups = [there.groups[int(i)] for i in rows]
    return cost_of(one.name, there.judge.at(rows), lambda joint: joint, joints, groups)
