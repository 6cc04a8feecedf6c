"""Studies of gains on a run: their price elsewhere, how little is enough, rules, other data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from residual_audio.adaptation.divisions import Division, folds_of
from residual_audio.adaptation.front import front
from residual_audio.adaptation.methods.rule import Rule, rule_gains
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.references import elsewhere, heard
from residual_audio.adaptation.search import Searched, sweep
from residual_audio.adaptation.smaller import leave_early, retain_and_prune
from residual_audio.adaptation.spread_search import SweepJob, sweep_folds
from residual_audio.adaptation.synthetic_reference import with_synthetic
from residual_audio.adaptation.trade import trade
from residual_audio.adaptation.transfer import Transferred, transfer
from residual_audio.direct.contributions import Contributions
from residual_audio.engine import Where
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.sliders import Sliders, gains_of_sliders, rules_of
from residual_audio.surface.given import GainsLike, ModelLike, given_gains
from residual_audio.surface.runs import (
    Folds,
    Run,
    RunLike,
    fold_names,
    given_run,
    passes_of_part,
)
from residual_audio.table import Table, from_rows
from residual_audio.types import Gains

HERE = Where()


@dataclass(frozen=True)
class Studied:
    """Which clips of a run are studied, and what hears them where the encoder has to run."""

    run: RunLike
    folds: Folds = None
    """Official folds to use; None for all clips."""
    n_folds: int = 5
    """Folds that clips are tested in."""
    seed: int = 0
    model: ModelLike | None = None
    device: str = "auto"

    def problem(self, network: bool = False, progress: Progress = SILENT) -> Problem:
        """Clips, classes and texts; with the encoder at hand where it is asked for."""
        given = given_run(self.run)
        rows = given.rows(self.folds)
        passes = given.passes(self.model, rows, progress, self.device) if network else None
        return problem_of(given.store, rows, passes=passes)


def gain_front(
    studied: Studied,
    keep: Sequence[str],
    *,
    network: bool = False,
    only: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Table:
    """What is gained here against what is lost on the references `keep` (runs, or folds of one:
    `RUN#1,2`), against the size of the edit. `network`: also edits that run the encoder."""
    problem = studied.problem(network, progress)
    hearing = None if problem.streams is None else problem.streams.passes.model
    keep = with_synthetic(keep, problem.about["model"], hearing, progress)
    places = elsewhere(keep, problem)
    if network:
        hear = partial(passes_of_part, model=studied.model, device=studied.device)
        places = heard(places, partial(hear, progress=progress))
    division = folds_of(problem.clips, studied.n_folds, studied.seed)
    how = Division(seed=studied.seed, only=tuple(only))
    points = front(problem, division, places, how=how, progress=progress)
    return from_rows("front", points, "Gained here, lost on references, size of the edit")


def gain_trade(
    studied: Studied, bounds: tuple[float, float] | None = None, progress: Progress = SILENT
) -> Table:
    """What bounded gains reach against how many units move and how alike the folds' edits are.

    Other bounds than those of readable gains are another question, and another table.
    """
    problem = studied.problem()
    division = folds_of(problem.clips, studied.n_folds, studied.seed)
    points = trade(problem, division, bounds, Division(seed=studied.seed), progress)
    note = f"{len(division)} folds; every point is shown, none is chosen"
    name = "trade" if bounds is None else f"trade_bounds_{bounds[0]:g}_{bounds[1]:g}"
    return from_rows(name, points, "Accuracy, units that move, stability", (note,))


def how_little(studied: Studied, progress: Progress = SILENT) -> list[Table]:
    """Components a head, and heads: what is enough, with the time that a pruned encoder saves."""
    given, names = given_run(studied.run), fold_names(studied.folds)
    passes = given.passes(studied.model, given.rows(names), progress, studied.device)
    return retain_and_prune(
        given.store,
        passes,
        folds=names,
        n_folds=studied.n_folds,
        seed=studied.seed,
        progress=progress,
    )


def early_exits(studied: Studied, progress: Progress = SILENT) -> list[Table]:
    """Text accuracy after each block, and of clips that leave at their first sure answer."""
    given, names = given_run(studied.run), fold_names(studied.folds)
    passes = given.passes(studied.model, given.rows(names), progress, studied.device)
    return leave_early(
        given.store,
        passes,
        folds=names,
        n_folds=studied.n_folds,
        seed=studied.seed,
        progress=progress,
    )


def ruled(
    studied: Studied,
    rule: Rule,
    *,
    path: Literal["direct", "network"] = "direct",
    numbers: Mapping[str, float] | None = None,
    progress: Progress = SILENT,
) -> tuple[Gains, Transferred]:
    """Gains by a rule, without training, and what they bring on the clips of the run."""
    problem = studied.problem(path == "network", progress)
    everyone = np.arange(len(problem))
    gains = rule_gains(problem, everyone, rule, path=path, numbers=dict(numbers or {}))
    return gains, transfer(problem, gains)


def transferred(studied: Studied, gains: GainsLike, *, progress: Progress = SILENT) -> Transferred:
    """What gains bring, or cost, on the clips of a run that they were not fitted on."""
    loaded = given_gains(gains)
    return transfer(studied.problem(loaded.path == "network", progress), loaded)


def search_settings(
    studied: Studied,
    *,
    n_trials: int = 30,
    network: bool = False,
    where: Where = HERE,
    progress: Progress = SILENT,
) -> Searched:
    """Trials of a nested search for settings, and its folds: each was scored by settings that were
    chosen on its training part. Studies are kept below the run and continued. `where` folds are
    searched: here one by one, or side by side in processes or on a Ray cluster."""
    given = given_run(studied.run)
    database = given.folder / "sweeps" / ("both.db" if network else "direct.db")
    progress.keeps(f"finished trials are kept in {database.parent}, the same command continues")
    problem = studied.problem(network and not where.elsewhere, progress)
    division = folds_of(problem.clips, studied.n_folds, studied.seed)
    if where.elsewhere:
        loaded = _LoadedThere(given.folder.resolve(), studied, network, given.root, given.options)
        job = SweepJob(loaded, database.resolve(), n_trials, studied.n_folds, studied.seed)
        return sweep_folds(job, tuple(division.names), where, progress)
    how = Division(seed=studied.seed)
    return sweep(problem, division, database, n_trials=n_trials, how=how, progress=progress)


@dataclass(frozen=True)
class _LoadedThere:
    """Loads the problem of a run in whatever process it is called."""

    folder: Path
    studied: Studied
    network: bool
    root: str | Path | None
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        # a run may hold a model or a data set: other processes open them themselves
        object.__setattr__(self, "studied", replace(self.studied, run=self.folder))

    def __call__(self) -> Problem:
        run = Run(self.folder, root=self.root, options=self.options)
        return replace(self.studied, run=run).problem(self.network)


def slider_gains(
    run: RunLike, sliders: Sliders, *, rules: Mapping[str, float] | None = None
) -> Gains:
    """What the sliders of the atlas say, as gains: λ by unit, that of the whole first and then
    those of its first components; and rules by name, each at its strength."""
    store = given_run(run).store
    parts = Contributions(store)
    found = gains_of_sliders(sliders, parts, rules_of(store, parts, rules or {}))
    about = {"model": asdict(store.model_info), "dataset": asdict(store.dataset_info)}
    return replace(found, fitted_on={**about, "by": "sliders of the atlas"})
