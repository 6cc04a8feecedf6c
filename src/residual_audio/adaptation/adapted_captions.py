"""What adaptation to captions is worth on a run: tables, a result and gains, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from residual_audio import provenance
from residual_audio.adaptation.adapted import WHOLE, AdaptSettings, name_of_part
from residual_audio.adaptation.caption_comparison import (
    EVERY_FOLD,
    CaptionOutcome,
    Recall,
    compare_on_captions,
    recalls,
)
from residual_audio.adaptation.methods.registry import (
    CAPTIONED,
    ENTRIES,
    MAIN_KEY,
    REFERENCE,
    find_entries,
    offered_for_captions,
)
from residual_audio.adaptation.other_splits import divide
from residual_audio.adaptation.problem import Problem
from residual_audio.adaptation.verdicts import edit_over_folds
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.table import Table, from_rows
from residual_audio.types import Gains, HeardBefore, Result, Score

NAME = "retrieval_adapted"
LEFT_OUT = {
    "--keep": "keep",
    "--cost": "cost",
    "--shots": "shots",
    "--draws": "draws",
}


@dataclass(frozen=True)
class CaptionAdaptation:
    """What a comparison on captions leaves behind."""

    tables: list[Table]
    """Recalls of every method and fold; what every method moved."""
    result: Result
    gains: dict[str, Gains] = field(default_factory=dict)
    """Fold → gains of the main method."""
    outcomes: list[CaptionOutcome] = field(default_factory=list)

    @property
    def gain_files(self) -> dict[str, Gains]:
        stem = self.tables[0].name.replace(NAME, "captions")
        return {f"{stem}-fold-{fold}": gains for fold, gains in self.gains.items()}


def adapt_to_captions(
    problem: Problem,
    settings: AdaptSettings | None = None,
    *,
    heard: HeardBefore | None = None,
    progress: Progress = SILENT,
) -> CaptionAdaptation:
    """Compare adaptations on captioned clips: fitted without a fold, ranked on it, both ways."""
    asked = AdaptSettings() if settings is None else settings
    for option, name in LEFT_OUT.items():
        if getattr(asked, name):
            raise InputError(f"{option} needs labels: compare with --by labels, or leave it out")
    _check_methods(asked.methods)
    if len(asked.seeds) > 1:
        raise InputError("--seeds: captions are compared with one seed, give --seed")
    problem, folds = divide(problem, asked.split, asked.n_folds, asked.seeds[0])
    there = entries = offered_for_captions(problem)
    if asked.methods:
        entries = find_entries(asked.methods, there, skip_missing=asked.skip_missing)
    seed = asked.seeds[0]
    outcomes = compare_on_captions(problem, folds, entries, seed=seed, progress=progress)
    rows = recalls(problem, folds, outcomes, seed=seed)
    part = name_of_part(entries if entries != there else [], asked.folds)
    name = NAME + ("" if asked.name else part.removeprefix(WHOLE))
    main = next((o for o in outcomes if o.entry.key == MAIN_KEY and not o.failed), None)
    table = from_rows(name, rows, "Retrieval before and after adaptation", _notes(problem, folds))
    methods = from_rows(f"{name}_methods", [_moved(o) for o in outcomes], "What every method moved")
    return CaptionAdaptation(
        [table, methods],
        _result(problem, folds, rows, name, heard, seed),
        {} if main is None else main.gains,
        outcomes,
    )


def _check_methods(keys: Sequence[str]) -> None:
    """Methods that need classes are refused by name."""
    for key in keys:
        meant = [entry for entry in ENTRIES if fnmatchcase(entry.key, key)]
        if meant and not any(isinstance(entry.method, CAPTIONED) for entry in meant):
            raise InputError(
                f"method '{key}' tells classes apart, it cannot be fitted to captions: compare "
                "with --by labels"
            )


def _moved(outcome: CaptionOutcome) -> dict[str, object]:
    entry = outcome.entry
    about: dict[str, object] = {"method": entry.label, "kind": entry.kind, "key": entry.key}
    if outcome.failed:
        return about | {"failed": outcome.failed}
    return about | {
        "parameters": outcome.n_parameters,
        "seconds": sum(outcome.seconds) / max(len(outcome.seconds), 1),
        "capped": sum(not notes.get("converged", True) for notes in outcome.notes.values()),
        **edit_over_folds(list(outcome.gains.values())),
    }


def _notes(problem: Problem, folds: Folds) -> tuple[str, ...]:
    n_captions = sum(len(clip.captions) for clip in problem.clips)
    return (
        f"{len(problem)} clips with {n_captions} captions, {len(set(problem.groups))} groups; "
        f"folds: {folds.source}",
        "t2a: every caption asks for its clip; a2t: every clip for any of its captions; candidates "
        "are the clips and captions of the tested fold, so that scores are not those of the whole "
        "set",
        "shared: a caption that several clips carry is right for each; own: only for the clip it "
        "was written for",
        "gain: recall less that of the model as it is, paired, 95% interval over groups",
    )


def _result(
    problem: Problem,
    folds: Folds,
    rows: Sequence[Recall],
    name: str,
    heard: HeardBefore | None,
    seed: int,
) -> Result:
    scores = []
    for row in rows:
        if row["fold"] != EVERY_FOLD:
            continue
        own = "_own" if row["count"] == "own" else ""
        measure = f"{row['direction']}{own}_r{row['k']}: {row['method']}"
        value = (row["recall"], row["low"], row["high"], row["n"], row["chance"])
        scores.append(Score(measure, *value))
        if row["key"] != REFERENCE:
            gap = (row["gain"], row["gain_low"], row["gain_high"], row["n"])
            scores.append(Score(f"gain {measure}", *gap))
    return Result(
        task=name.replace("_", "-"),
        model=problem.about["model"]["name"],
        dataset=problem.about["dataset"]["name"],
        split=folds.source,
        scores=tuple(scores),
        details={"table": list(rows), "folds": list(folds.names), "heard_before": heard},
        provenance={**provenance.collect(seed=seed), **problem.about},
    )
