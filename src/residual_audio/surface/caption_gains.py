"""Adapting a model to captions: how often the right answer is among the first, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from residual_audio.adaptation.adapted import AdaptSettings
from residual_audio.adaptation.adapted_captions import CaptionAdaptation as CaptionAdaptation
from residual_audio.adaptation.adapted_captions import adapt_to_captions
from residual_audio.adaptation.caption_comparison import EVERY_FOLD as EVERY_FOLD
from residual_audio.adaptation.caption_comparison import compare_on_captions, recalls
from residual_audio.adaptation.caption_problem import caption_problem, captioned_rows
from residual_audio.adaptation.divisions import folds_of, whole_split
from residual_audio.adaptation.methods.method import Method
from residual_audio.adaptation.methods.registry import (
    CAPTIONED,
    ENTRIES,
    REFERENCE,
)
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.synthetic_reference import with_synthetic
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.reweight.gains import blend
from residual_audio.surface.given import ModelLike, given_model
from residual_audio.surface.method_entry import entry_of
from residual_audio.surface.runs import Folds, Run, RunLike, fold_names, given_run
from residual_audio.table import Table, from_rows
from residual_audio.types import Gains, Score

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class CaptionsAdapted:
    """What an adaptation to captions is worth, and what it leaves behind.

    >>> import residual_audio as ra
    >>> row = {"direction": ["t2a"], "k": [1], "count": ["shared"], "recall": [0.5], "low": [0.3]}
    >>> table = ra.Table("captions", {**row, "high": [0.7], "n": [20], "chance": [0.1]})
    >>> ra.CaptionsAdapted(table, ra.ResiDual()).score("t2a", 1).value
    0.5
    """

    table: Table
    """R@1, 5, 10 of both directions before and after, with the paired difference."""
    method: Method
    gains: Gains | None = field(default=None, repr=False)
    """Fitted on all captioned clips (of the folds asked for), to be used on others."""
    fold_gains: Mapping[str, Gains] = field(default_factory=dict, repr=False)
    """Fold → gains fitted without it."""

    def score(self, direction: str = "t2a", k: int = 1, count: str = "shared") -> Score:
        """One recall after adaptation, on clips that were not fitted on."""
        rows = [
            row
            for row in self.table.rows()
            if (row["direction"], row["k"], row["count"]) == (direction, k, count)
        ]
        if not rows:
            raise InputError(f"there is no R@{k} '{direction}' counted as '{count}'")
        (row,) = rows
        values = (row["recall"], row["low"], row["high"], int(row["n"]), row["chance"])
        return Score(f"{direction}_r{k}", *values)

    def plot(self, what: str | None = None) -> Figure:
        return self.table.plot(what)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def adapt_captions(
    run: RunLike,
    method: Method | str | None = None,
    *,
    model: ModelLike | None = None,
    folds: Folds = None,
    n_folds: int = 5,
    seed: int = 0,
    progress: Progress = SILENT,
) -> CaptionsAdapted:
    """Fit a method to captions on grouped folds, rank each where it was held out, then fit on all.

    Methods as of `ra.adapt`, without those that need classes. The objective is the contrastive
    loss unless the method names another (`ra.ResiDual(objective="contrastive:1,gap:0.5")`).

    >>> import tempfile, residual_audio as ra
    >>> sounds = ra.load_dataset("synthetic", n_clips=41).select(limit=20)
    >>> run = ra.extract("nano", sounds, tempfile.mkdtemp())
    >>> found = ra.adapt_captions(run, ra.ResiDual(stages=(3,)), n_folds=2)
    >>> found.score("a2t", 5).n, found.gains.path
    (20, 'direct')
    """
    entry = entry_of(ResiDual() if method is None else method)
    if not isinstance(entry.method, CAPTIONED):
        raise InputError(f"{entry.label} tells classes apart: it cannot be fitted to captions")
    given = given_run(run)
    problem = problem_of_captions(given, folds, model, entry.method.runs_encoder, progress)
    if not entry.method.offered(problem):
        raise InputError(f"{entry.label} needs what this run has not: the direct path or the model")
    division = folds_of(problem.clips, n_folds, seed)
    reference = next(e for e in ENTRIES if e.key == REFERENCE)
    found = compare_on_captions(problem, division, [reference, entry], seed=seed, progress=progress)
    if found[1].failed:
        raise InputError(f"{entry.label} could not be fitted: {found[1].failed}")
    rows = [
        row
        for row in recalls(problem, division, found, seed=seed)
        if row["fold"] == EVERY_FOLD and row["key"] == entry.key
    ]
    progress.step("fitting on all clips")
    whole = entry.method.fit(problem, whole_split(problem, seed)).gains
    caption = f"{entry.label} on {len(division)} grouped folds of {len(problem)} captioned clips"
    table = from_rows("captions_adapted", rows, caption)
    return CaptionsAdapted(table, entry.method, whole, found[1].gains)


def compare_captions(
    run: RunLike,
    settings: AdaptSettings,
    *,
    model: ModelLike | None = None,
    network: bool = False,
    device: str = "auto",
    progress: Progress = SILENT,
) -> CaptionAdaptation:
    """Every adaptation to captions on the same grouped folds: `reweight compare --by captions`."""
    given = given_run(run)
    problem = problem_of_captions(given, settings.folds, model, network, progress, device)
    heard = given.store.heard_before
    return adapt_to_captions(problem, settings, heard=heard, progress=progress)


def fit_caption_gains(
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
    """Gains of one method on all captioned clips of a run: `reweight fit --by captions`."""
    given = given_run(run)
    problem = problem_of_captions(given, folds, model, method.runs_encoder, progress, device)
    with_synthetic(method.references, problem.about["model"], None, progress)
    progress.step("fitting gains")
    fitted = method.fit(problem, whole_split(problem, seed))
    assert fitted.gains is not None
    return blend(fitted.gains, amount)


def problem_of_captions(
    run: Run,
    folds: Folds,
    model: ModelLike | None,
    network: bool,
    progress: Progress,
    device: str = "auto",
) -> Problem:
    """The captioned clips of a run; the model is loaded where it has to run or to embed texts."""
    rows = captioned_rows(run.store, fold_names(folds))
    if network:
        return caption_problem(run.store, rows, passes=run.passes(model, rows, progress, device))
    try:
        return caption_problem(run.store, rows)
    except InputError:  # more captions than the store keeps
        loaded = given_model(model or run.store.model_info.name, device)
        return caption_problem(run.store, rows, embed=loaded.embed_text)


def goes_by_captions(run: Run) -> bool:
    """Whether a run is about captions where nobody says so: not every clip has a label."""
    clips = run.store.clips
    return any(label is None for label in clips["label"]) and any(map(len, clips["captions"]))
