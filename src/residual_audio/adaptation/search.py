"""Hyper-parameter search for gains, nested: the fold that is reported never chooses.

For each outer fold a study of its own looks for the best settings by the accuracy on held-out
groups of the training part; they are then fitted on the whole training part and scored once on the
test part. Every study lives in an SQLite file of its own and continues where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from residual_audio.adaptation.divisions import Division, Split, splits_of
from residual_audio.adaptation.methods.in_encoder import lesson_of, scores_of
from residual_audio.adaptation.methods.registry import STAGE_SETS, name_of
from residual_audio.adaptation.methods.residual import NETWORK, ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError, MissingExtraError
from residual_audio.metrics import classification
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.axes import Components
from residual_audio.reweight.descent import fit
from residual_audio.reweight.objectives import objective
from residual_audio.reweight.path import PATHS, Kind, StrengthPath
from residual_audio.table import Table, from_rows

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

COMPONENTS = ("all", "0.9", "0.99", "4", "8", "coarse")


@dataclass(frozen=True)
class Searched:
    """Trials of every study, and one row an outer fold with the nested score."""

    trials: list[dict[str, object]]
    folds: list[dict[str, object]]

    @property
    def tables(self) -> tuple[Table, Table]:
        """Of trials and of folds."""
        tried = "Trials, by held-out accuracy inside the training part"
        scored = "Nested: chosen on the training part, scored on the test"
        return (
            from_rows("sweep_trials", self.trials, tried),
            from_rows("sweep_folds", self.folds, scored),
        )


def suggest(trial: BaseTrial, problem: Problem) -> tuple[ResiDual, float]:
    """One point of the search space: a method, and its strength (direct) or epochs (network)."""
    sets = {name_of(s): s for s in STAGE_SETS if set(s) <= set(problem.stages)}
    stages = sets[trial.suggest_categorical("stages", list(sets))]
    components = Components.parse(trial.suggest_categorical("components", list(COMPONENTS)))
    bounds = (0.0, trial.suggest_float("max_gain", 1.5, 50.0, log=True))
    path = "direct"
    if problem.streams is not None:
        path = trial.suggest_categorical("path", ["direct", "network"])
    if path == "network":
        settings = replace(
            NETWORK,
            learning_rate=trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
            strength=trial.suggest_float("ridge", 1e-3, 3.0, log=True),
        )
        method = ResiDual(
            "head", stages, components, path="network", bounds=bounds, settings=settings
        )
        return method, trial.suggest_int("network_epochs", 2, 10, log=True)
    penalty: Kind = trial.suggest_categorical("penalty", list(PATHS))  # type: ignore[assignment]
    strength = trial.suggest_float("strength", 1e-3, 0.5, log=True)
    return ResiDual("head", stages, components, bounds=bounds, penalty=penalty), strength


def score(
    problem: Problem, split: Split, method: ResiDual, amount: float, test: np.ndarray
) -> float:
    """Top-1 on `test`, fitted on `split.fit` with this strength or so many epochs."""
    alone = replace(split, held_out=split.held_out[:0])
    if method.runs_encoder:
        gains = method.start(problem, alone)
        embed = problem.encoder.embed(gains)
        loss = objective(method.objective or problem.objective, problem.judge)
        (settings,) = method.search(split.seed).options
        fit(embed, list(gains.parameters()), loss, split.fit, None, settings, epochs=int(amount))
        scores = scores_of(problem, test, embed)
    else:
        terms = method.terms(problem, alone)
        here = lesson_of(problem, alone, method.objective).loss(terms, problem.head, split.fit)
        x = StrengthPath(here, method.regularity).at(amount).x
        with torch.no_grad():
            scores = problem.scores(problem.from_latent(terms.at(test).shifted(x)))
    rank = classification.true_rank(scores, problem.codes[test])
    return float((rank == 1).mean())


def sweep(
    problem: Problem,
    folds: Folds,
    storage: Path,
    *,
    n_trials: int = 30,
    how: Division | None = None,
    progress: Progress = SILENT,
) -> Searched:
    """A study an outer fold; where the problem has an encoder, gains inside it are searched too."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtraError("optuna", "sweep", "a sweep") from error
    # a trial that the user stops is logged with its traceback below this level
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage.parent.mkdir(parents=True, exist_ok=True)
    found = Searched([], [])
    for split in splits_of(problem, folds, how):
        if not len(split.held_out):
            raise InputError(f"fold '{split.name}' has no clip to hold out: nothing can be chosen")
        study = optuna.create_study(
            study_name=f"fold {split.name}, seed {split.seed}",
            storage=f"sqlite:///{study_file(storage, split.name)}",
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=split.seed, n_startup_trials=min(10, n_trials)),
        )
        done = sum(t.value is not None for t in study.trials)
        progress.step(f"fold {split.name}", n_trials, "trials")
        progress.advance(min(done, n_trials))
        progress.keeps(f"finished trials are kept in {storage}: the same command goes on")

        here = problem.on(split.fit, split.held_out)

        def objective_of(trial: BaseTrial, split: Split = split, here: Problem = here) -> float:
            method, amount = suggest(trial, here)
            value = score(here, split, method, amount, split.held_out)
            progress.advance()
            return value

        study.optimize(objective_of, n_trials=max(0, n_trials - done))
        found.trials.extend(
            {"fold": split.name, "trial": t.number, "held_out_top1": t.value, **t.params}
            for t in study.trials
            if t.value is not None
        )
        found.folds.append(_nested(here, split, study.best_params, study.best_value))
        problem.forget()
    return found


def study_file(storage: Path, fold: str) -> Path:
    """`direct.db` → `direct-1.db`: nobody else writes to a fold's study."""
    plain = re.sub(r"[^\w-]+", "-", fold)
    return storage.with_name(f"{storage.stem}-{plain}{storage.suffix}")


def _nested(
    problem: Problem, split: Split, best: Mapping[str, object], held_out: float
) -> dict[str, object]:
    """The best settings fitted on the whole training part and scored once on the test part."""
    from optuna.trial import FixedTrial

    method, amount = suggest(FixedTrial(dict(best)), problem)
    whole = replace(split, fit=split.train, held_out=split.held_out[:0])
    before = classification.true_rank(
        problem.scores(problem.joint[split.test]), problem.codes[split.test]
    )
    return {
        "fold": split.name,
        "held_out_top1": held_out,
        "top1": score(problem, whole, method, amount, split.test),
        "zero_shot_top1": float((before == 1).mean()),
        "n_test": len(split.test),
        **best,
    }
