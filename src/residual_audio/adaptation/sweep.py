"""Hyper-parameter search for gains, nested: the fold that is reported never chooses.

For each outer fold a study of its own looks for the best settings by the accuracy on held-out
groups of the training part; they are then fitted on the whole training part and scored once on the
test part. Studies live in one SQLite file and continue where they stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from residual_audio.adaptation.comparison import STAGE_SETS, name_of
from residual_audio.adaptation.methods import DEFAULTS, Residual
from residual_audio.adaptation.network_methods import GAINS, NetworkResidual, Rooms, scores_of
from residual_audio.adaptation.problem import Problem, Split, splits_of
from residual_audio.errors import InputError, MissingExtraError
from residual_audio.metrics import classification
from residual_audio.passes.kept import Passes
from residual_audio.reweight.fit import Embed, FitSettings, fit
from residual_audio.reweight.objectives import cross_entropy
from residual_audio.reweight.spectra import Components

COMPONENTS = ("all", "0.9", "0.99", "4", "8", "coarse")


def suggest(
    trial: Any, n_stages: int, rooms: Rooms | None
) -> tuple[Residual | NetworkResidual, int]:
    """One point of the search space, and its number of epochs; with rooms, on either path."""
    sets = [name_of(s) for s in STAGE_SETS if max(s) < n_stages]
    stages = {name_of(s): s for s in STAGE_SETS}[trial.suggest_categorical("stages", sets)]
    components = Components.parse(trial.suggest_categorical("components", list(COMPONENTS)))
    settings = replace(
        DEFAULTS,
        learning_rate=trial.suggest_float("learning_rate", 0.01, 0.5, log=True),
        l2=trial.suggest_float("l2", 1e-3, 3.0, log=True),
        batch_size=None if components.coarse else DEFAULTS.batch_size,
    )
    path = "direct" if rooms is None else trial.suggest_categorical("path", ["direct", "network"])
    if path == "network":
        assert rooms is not None
        epochs = trial.suggest_int("network_epochs", 2, 10, log=True)
        inside = replace(settings, batch_size=GAINS.batch_size)
        return NetworkResidual(rooms, "head", stages, components, settings=inside), epochs
    epochs = trial.suggest_int("epochs", 5, 80, log=True)
    return Residual("head", stages, components, settings=settings), epochs


def score(
    problem: Problem,
    split: Split,
    method: Residual | NetworkResidual,
    epochs: int,
    test: np.ndarray,
    seed: int,
) -> float:
    """Top-1 on `test` after exactly so many epochs on `split.fit`."""
    alone = replace(split, held_out=split.held_out[:0])
    settings: FitSettings = replace(method.settings, seed=seed)
    embed: Embed
    if isinstance(method, NetworkResidual):
        gains, embed = method.start(problem, alone, seed)
        loss = cross_entropy(problem.judge)
        fit(embed, list(gains.parameters()), loss, split.fit, None, settings, epochs=epochs)
        scores = scores_of(problem, test, embed)
    else:
        terms = method.terms(problem, alone, seed)
        local, judge = terms.at(split.fit), problem.judge.at(split.fit)
        values = torch.ones(terms.n_gains, requires_grad=True)
        embed = lambda rows: problem.from_latent(local.latent(values, rows))  # noqa: E731
        rows = np.arange(len(split.fit))
        fit(embed, [values], cross_entropy(judge), rows, None, settings, epochs=epochs)
        with torch.no_grad():
            joint = problem.from_latent(terms.latent(values.detach(), torch.as_tensor(test)))
        scores = problem.scores(joint)
    rank = classification.true_rank(scores, problem.codes[test])
    return float((rank == 1).mean())


def sweep(
    problem: Problem,
    folds: Any,
    storage: Path,
    *,
    n_trials: int = 30,
    seed: int = 0,
    only: Sequence[str] | None = None,
    passes: Passes | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Trials of every study, and one row an outer fold with the nested score.

    With `passes`, gains inside the network are in the search too.
    """
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtraError("optuna", "sweep", "a sweep") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage.parent.mkdir(parents=True, exist_ok=True)
    n_stages = 1 + max(site.stage for site in problem.sites)
    rooms = None if passes is None else Rooms(passes)
    trials, outer = [], []
    chosen = (lambda name: name in set(only)) if only else None
    for split in splits_of(problem, folds, seed=seed, only=chosen):
        if not len(split.held_out):
            raise InputError(f"fold '{split.name}' has no clip to hold out: nothing can be chosen")
        study = optuna.create_study(
            study_name=f"fold {split.name}, seed {seed}",
            storage=f"sqlite:///{storage}",
            direction="maximize",
            load_if_exists=True,
            sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=min(10, n_trials)),
        )

        def objective(trial: Any, split: Split = split) -> float:
            method, epochs = suggest(trial, n_stages, rooms)
            if progress is not None:
                progress(f"fold {split.name}, trial {trial.number}")
            return score(problem, split, method, epochs, split.held_out, seed)

        done = sum(t.state.is_finished() for t in study.trials)
        study.optimize(objective, n_trials=max(0, n_trials - done))
        trials += [
            {"fold": split.name, "trial": t.number, "held_out_top1": t.value, **t.params}
            for t in study.trials
            if t.value is not None
        ]
        method, epochs = suggest(optuna.trial.FixedTrial(study.best_params), n_stages, rooms)
        whole = replace(split, fit=split.train, held_out=split.held_out[:0])
        before = classification.true_rank(
            problem.scores(problem.joint[split.test]), problem.codes[split.test]
        )
        outer.append(
            {
                "fold": split.name,
                "held_out_top1": study.best_value,
                "top1": score(problem, whole, method, epochs, split.test, seed),
                "zero_shot_top1": float((before == 1).mean()),
                "n_test": len(split.test),
                **study.best_params,
            }
        )
        problem.forget()
    return trials, outer
