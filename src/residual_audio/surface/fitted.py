"""Adapting a model to a run: what it is worth on clips that were not fitted on, and the gains."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from residual_audio.adaptation.adapted import Adaptation, AdaptSettings, fit_whole
from residual_audio.adaptation.adapted import adapt as compare_on
from residual_audio.adaptation.comparison import Outcome, compare
from residual_audio.adaptation.divisions import folds_of, whole_split
from residual_audio.adaptation.methods.method import Method
from residual_audio.adaptation.methods.registry import ENTRIES, REFERENCE
from residual_audio.adaptation.methods.residual import NETWORK as NETWORK
from residual_audio.adaptation.methods.residual import RATES as RATES
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.other_splits import ColumnSplit
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.synthetic_reference import with_synthetic
from residual_audio.adaptation.verdicts import hits_of
from residual_audio.embeddings.prompts import embed_classes, find_prompts
from residual_audio.errors import InputError, ResidualAudioError
from residual_audio.judge.of_store import clips_of
from residual_audio.metrics.uncertainty import mean_interval, paired_difference
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.axes import Components as Components
from residual_audio.reweight.edit_size import edit_size as edit_size
from residual_audio.reweight.gains import blend
from residual_audio.reweight.gains import moved as moved
from residual_audio.reweight.gains import n_gains as n_gains
from residual_audio.surface.given import ModelLike, given_model
from residual_audio.surface.method_entry import entry_of
from residual_audio.surface.runs import Folds, Run, RunLike, fold_names, given_run, passes_of_part
from residual_audio.table import Table, from_rows
from residual_audio.types import Gains, Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Adapted:
    """What an adaptation is worth, and what it leaves behind; `ra.adapt` gives one.

    >>> import residual_audio as ra
    >>> before, after = (ra.Score("top1", value, 0.0, 1.0, 10) for value in (0.4, 0.5))
    >>> ra.Adapted(after, before, ra.Score("gain", 0.1, -0.1, 0.3, 10), ra.ResiDual(), ("1", "2"))
    adapted: ResiDual on 2 grouped folds (3 rows × 5 columns)
    score  value   low  high   n
    top1     0.4     0     1  10
    top1     0.5     0     1  10
    gain     0.1  -0.1   0.3  10
    """

    score: Score
    """Top-1 on clips that were not fitted on: every clip in the fold that tested it."""
    before: Score
    """The same clips with the model as it is."""
    gain: Score
    """The paired difference, whole groups drawn."""
    method: Method
    folds: tuple[str, ...]
    gains: Gains | None = field(default=None, repr=False)
    """Fitted on all clips of the run (or of the folds asked for), to be used on others."""
    fold_gains: Mapping[str, Gains] = field(default_factory=dict, repr=False)
    """Fold → gains fitted without it."""

    @property
    def table(self) -> Table:
        rows = [
            {"score": s.name, "value": s.value, "low": s.low, "high": s.high, "n": s.n}
            for s in (self.before, self.score, self.gain)
        ]
        chance = "" if self.score.chance is None else f", chance {self.score.chance:.3g}"
        caption = f"{type(self.method).__name__} on {len(self.folds)} grouped folds{chance}"
        return from_rows("adapted", rows, caption)

    def plot(self, what: str | None = None) -> Figure:
        """Before, after and the difference, with their intervals."""
        return self.table.plot(what)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def adapt(
    run: RunLike,
    method: Method | str | None = None,
    *,
    model: ModelLike | None = None,
    folds: Folds = None,
    n_folds: int = 5,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Adapted:
    """Fit a method on grouped folds, score each clip where it was held out, then fit on all.

    `method` is a config (`ra.ResiDual(stages=(2, 3))`, `ra.LinearProbe()`, `ra.Rule("fisher")`,
    `ra.LoRA()`) or the key of one (`heads-23`). What runs the encoder (`path="network"`, LoRA)
    needs the model. A trained method has seen labels: its score is not zero-shot.

    >>> import tempfile, residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=246).select(classes=["rain", "wind"])
    >>> run = ra.extract("nano", sounds, tempfile.mkdtemp())
    >>> fitted = ra.adapt(run, ra.Rule("fisher"))
    >>> fitted.score.n, fitted.gains.path
    (12, 'direct')
    """
    entry = entry_of(ResiDual() if method is None else method)
    given, names = given_run(run), fold_names(folds)
    rows = given.rows(folds)
    passes = None
    if entry.method.runs_encoder:
        if model is None:
            raise InputError(f"{type(entry.method).__name__} runs the encoder: give model=")
        passes = given.passes(model, rows, progress)
    problem = problem_of(given.store, rows, passes=passes)
    if not entry.method.offered(problem):
        raise InputError(
            f"{entry.label} needs what this run has not: the direct path (extract with "
            "capture=('heads', 'direct')) or other stages"
        )
    division = folds_of(problem.clips, n_folds, seed)
    reference = next(e for e in ENTRIES if e.key == REFERENCE)
    before, after = compare(problem, division, [reference, entry], seeds=(seed,), progress=progress)
    if after.failed:
        raise InputError(f"{entry.label} could not be fitted: {after.failed}")
    progress.step("fitting on all clips")
    everyone = whole_split(problem, seed)
    here = problem.on(everyone.fit, everyone.held_out)
    whole = entry.method.fit(here, everyone).gains
    about = {"folds": list(names), "n_clips_fitted": len(problem)}
    return Adapted(
        _score("top1", problem, after, seed),
        _score("top1 before", problem, before, seed),
        _difference(problem, after, before, seed),
        entry.method,
        tuple(division.names),
        None if whole is None else replace(whole, fitted_on={**whole.fitted_on, **about}),
        after.gains,
    )


def _score(name: str, problem: Problem, outcome: Outcome, seed: int) -> Score:
    hits = hits_of(problem, outcome, 1).mean(0)
    tested = ~np.isnan(hits)
    groups = [group for group, known in zip(problem.groups, tested, strict=True) if known]
    low, high = mean_interval(hits[tested], groups=groups, seed=seed)
    n, chance = int(tested.sum()), 1 / len(problem.classes)
    return Score(name, float(hits[tested].mean()) if n else math.nan, low, high, n, chance)


def _difference(problem: Problem, after: Outcome, before: Outcome, seed: int) -> Score:
    a, b = (hits_of(problem, outcome, 1).mean(0) for outcome in (after, before))
    found = paired_difference(a, b, groups=problem.groups, seed=seed)
    return Score("gain", found.value, found.low, found.high, found.n)


def compare_methods(
    run: RunLike,
    settings: AdaptSettings,
    *,
    model: ModelLike | None = None,
    network: bool = False,
    ensemble: str | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Adaptation:
    """Every adaptation on the same grouped folds: what `residual-audio reweight compare` writes.

    `network` adds those that run the encoder, `ensemble` the model with a named set of prompts. The
    main table is followed by harder splits, where the data set knows of some and lies at hand.
    """
    given = given_run(run)
    store = given.store
    if not (settings.methods or settings.folds or settings.split or settings.harder):
        settings = replace(settings, harder=harder_splits(given))
    passes = hear = None
    if network:
        passes = given.passes(model, given.rows(settings.folds), progress, device)
        hear = partial(passes_of_part, model=model, device=device, progress=progress)
    texts = None
    if ensemble is not None:
        loaded = given_model(model or store.model_info.name, device)
        texts = embed_classes(loaded, store.classes, find_prompts(ensemble, store.template))
    return compare_on(store, settings, ensemble=texts, passes=passes, hear=hear, progress=progress)


def harder_splits(run: Run) -> tuple[str, ...]:
    """Other folds that the tables of a run's data set allow, as far as those know all of its clips;
    none where the data are not at hand. What the store alone can tell does not depend on them."""
    if run.lacks_folder:
        return ()
    try:
        offered, clips = run.dataset.splits, clips_of(run.store)
        return tuple(s for s in offered if ColumnSplit.parse(s).values(clips))
    except ResidualAudioError:
        return ()


def fit_gains(
    run: RunLike,
    method: ResiDual,
    *,
    model: ModelLike | None = None,
    folds: Folds = None,
    seed: int = 0,
    amount: float = 1.0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Gains:
    """Gains of one method on all clips of a run (or of some folds), with what held-out clips say:
    what `residual-audio reweight fit` writes. `amount` goes from 0 (all gains 1) to 1."""
    given, names = given_run(run), fold_names(folds)
    passes = None
    if method.runs_encoder:
        passes = given.passes(model, given.rows(folds), progress, device)
    with_synthetic(method.references, asdict(given.store.model_info), None, progress)
    progress.step("fitting gains")
    return blend(fit_whole(given.store, method, folds=names, seed=seed, passes=passes), amount)
