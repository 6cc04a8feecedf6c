"""Hyper-parameter search for gains, nested: the fold that is reported never chooses.

For each outer fold a study of its own looks for the best settings by the accuracy on held-out
groups of the training part; they are then fitted on the whole training part and scored once on the
test part. Studies live in one SQLite file and continue where they stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from residual_audio.adaptation.divisions import Division, Split, splits_of
from residual_audio.adaptation.methods.registry import STAGE_SETS, name_of
from residual_audio.adaptation.methods.residual import DIRECT, NETWORK, ResiDual
from residual_audio.adaptation.methods.training import scores_of
from residual_audio.adaptation.problem import Problem
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError, MissingExtraError
from residual_audio.metrics import classification
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.axes import Components
from residual_audio.reweight.descent import Embed, fit
from residual_audio.reweight.objectives import objective

if TYPE_CHECKING:
    from optuna.trial import BaseTrial

COMPONENTS = ("all", "0.9", "0.99", "4", "8", "coarse")


@dataclass(frozen=True)
class Searched:
    """Trials of every study, and one row an outer fold with the nested score."""

    trials: list[dict[str, Any]]
    folds: list[dict[str, Any]]


def suggest(trial: BaseTrial, problem: Problem) -> tuple[ResiDual, int]:
    """One point of the search space, and its number of epochs; with an encoder, on either path."""
    sets = {name_of(s): s for s in STAGE_SETS if set(s) <= set(problem.stages)}
    stages = sets[trial.suggest_categorical("stages", list(sets))]
    components = Components.parse(trial.suggest_categorical("components", list(COMPONENTS)))
    settings = replace(
        DIRECT,
        learning_rate=trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
        l2=trial.suggest_float("l2", 1e-3, 3.0, log=True),
        batch_size=None if components.coarse else DIRECT.batch_size,
    )
    path = "direct"
    if problem.streams is not None:
        path = trial.suggest_categorical("path", ["direct", "network"])
    if path == "network":
        epochs = trial.suggest_int("network_epochs", 2, 10, log=True)
        inside = replace(settings, batch_size=NETWORK.batch_size)
        method = ResiDual("head", stages, components, path="network", settings=inside)
        return method, epochs
    epochs = trial.suggest_int("epochs", 5, 80, log=True)
    return ResiDual("head", stages, components, settings=settings), epochs


def score(problem: Problem, split: Split, method: ResiDual, epochs: int, test: np.ndarray) -> float:
    """Top-1 on `test` after exactly so many epochs on `split.fit`."""
    alone = replace(split, held_out=split.held_out[:0])
    settings = replace(method.settings or DIRECT, seed=split.seed)
    embed: Embed
    if method.runs_encoder:
        gains = method.start(problem, alone)
        embed = problem.encoder.embed(gains)
        loss = objective(method.objective, problem.judge)
        fit(embed, list(gains.parameters()), loss, split.fit, None, settings, epochs=epochs)
        scores = scores_of(problem, test, embed)
    else:
        terms = method.terms(problem, alone)
        local, judge = terms.at(split.fit), problem.judge.at(split.fit)
        values = torch.ones(terms.n_gains, requires_grad=True)
        embed = lambda rows: problem.from_latent(local.latent(values, rows))  # noqa: E731
        rows, loss = np.arange(len(split.fit)), objective(method.objective, judge)
        fit(embed, [values], loss, rows, None, settings, epochs=epochs)
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(values.detach(), torch.as_tensor(test)))
        scores = problem.scores(joint)
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
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage.parent.mkdir(parents=True, exist_ok=True)
    found = Searched([], [])
    for split in splits_of(problem, folds, how):
        if not len(split.held_out):
            raise InputError(f"fold '{split.name}' has no clip to hold out: nothing can be chosen")
        study = optuna.create_study(
            study_name=f"fold {split.name}, seed {split.seed}",
            storage=f"sqlite:///{storage}",
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=split.seed, n_startup_trials=min(10, n_trials)),
        )
        done = sum(t.state.is_finished() for t in study.trials)
        progress.step(f"fold {split.name}", n_trials, "trials")
        progress.advance(min(done, n_trials))
        progress.keeps(f"finished trials are kept in {storage}: the same command goes on")

        def objective_of(trial: BaseTrial, split: Split = split) -> float:
            method, epochs = suggest(trial, problem)
            value = score(problem, split, method, epochs, split.held_out)
            progress.advance()
            return value

        study.optimize(objective_of, n_trials=max(0, n_trials - done))
        found.trials.extend(
            {"fold": split.name, "trial": t.number, "held_out_top1": t.value, **t.params}
            for t in study.trials
            if t.value is not None
        )
        found.folds.append(_nested(problem, split, study.best_params, study.best_value))
        problem.forget()
    return found


def _nested(
    problem: Problem, split: Split, best: Mapping[str, Any], held_out: float
) -> dict[str, Any]:
    """The best settings fitted on the whole training part and scored once on the test part."""
    from optuna.trial import FixedTrial

    method, epochs = suggest(FixedTrial(dict(best)), problem)
    whole = replace(split, fit=split.train, held_out=split.held_out[:0])
    before = classification.true_rank(
        problem.scores(problem.joint[split.test]), problem.codes[split.test]
    )
    return {
        "fold": split.name,
        "held_out_top1": held_out,
        "top1": score(problem, whole, method, epochs, split.test),
        "zero_shot_top1": float((before == 1).mean()),
        "n_test": len(split.test),
        **best,
    }
