"""What adaptation is worth on a run: tables, a result and gains, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

import numpy as np

from residual_audio import provenance
from residual_audio.adaptation.choices import chosen_table
from residual_audio.adaptation.comparison import Outcome, compare
from residual_audio.adaptation.divisions import Division, whole_split
from residual_audio.adaptation.harder_splits import OnSplit, on_all_splits
from residual_audio.adaptation.methods.registry import (
    MAIN_KEY,
    REFERENCE,
    Entry,
    find_entries,
    kept_entries,
    main_entries,
    offered,
)
from residual_audio.adaptation.methods.residual import ResiDual
from residual_audio.adaptation.moved import moved_components, moved_units
from residual_audio.adaptation.other_splits import divide
from residual_audio.adaptation.problem import Problem, problem_of
from residual_audio.adaptation.references import elsewhere, heard
from residual_audio.adaptation.retention import retention_direct, retention_grid, retention_table
from residual_audio.adaptation.synthetic_reference import with_synthetic
from residual_audio.adaptation.verdicts import Verdict, against, cost_rows, verdicts
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.judge.of_store import rows_of
from residual_audio.passes.kept import Passes
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Gains, HeardBefore, Result, Score

WHOLE = "adapted"
"""The name of a comparison of the main methods, or all, on all clips."""
HARDER = "adapted_splits"
FEW_SHOT = ("coarse", "rotated", "random", "output-gains", "ridge", "linear-probe-*")


@dataclass(frozen=True)
class AdaptSettings:
    """What to compare, and on which clips."""

    folds: tuple[str, ...] = ()
    """Only clips of these official folds; none for all clips."""
    n_folds: int = 5
    """Grouped folds, where there are no official ones."""
    split: str = ""
    """Other folds: `FILE.csv#COLUMN` for whole values out, `FILE.csv#COLUMN:blocks`."""
    harder: tuple[str, ...] = ()
    """Such folds on which the main method is told as well, in a table of its own."""
    seeds: tuple[int, ...] = (0,)
    shots: tuple[int, ...] = ()
    """Few-shot curves of the main methods with so many clips a class."""
    methods: tuple[str, ...] = ()
    """Keys of methods (`*` stands for anything); none for the main ones."""
    every_method: bool = False
    """All that there are: four times as long as the main ones."""
    skip_missing: bool = False
    """Methods that the store has nothing for are passed over, rather than refused."""
    keep: tuple[str, ...] = ()
    """Reference runs (`RUN`, folds of it: `RUN#1,2`, or `synthetic`): every row says what it costs
    there, and the methods that hold them in place are added."""
    max_loss: float | None = None
    """Share of right answers that may be lost there; None: 0.03."""
    cost: tuple[str, ...] = ()
    """Runs that nothing holds in place: what every row costs is said of these, if there are any."""
    draws: int = 0
    """Bootstrap draws of the training groups, in which the main method chooses its units again."""
    retention: bool = True
    allow_missing: bool = False
    name: str | None = None
    """What the tables are named after; None: `adapted`, or a name of its own for a part."""

    def __post_init__(self) -> None:
        if self.max_loss is not None and not self.keep:
            raise InputError("what may be lost is of reference runs: name some to keep")
        if self.every_method and self.methods:
            raise InputError("every method, or those that are named: give one or the other")


@dataclass
class Adaptation:
    """What a comparison leaves behind."""

    name: str
    tables: list[Table]
    result: Result
    gains: dict[str, Gains] = field(default_factory=dict)
    """Fold → gains of the main method."""
    outcomes: list[Outcome] = field(default_factory=list)
    main: Verdict | None = None
    """The main method's row."""
    splits: list[OnSplit] = field(default_factory=list)
    """The same on harder splits, where there are any."""

    @property
    def gain_files(self) -> dict[str, Gains]:
        """Names of files for the gains; those of a part do not replace those of the whole."""
        stem = "direct" if self.name == WHOLE else self.name
        return {f"{stem}-fold-{fold}": gains for fold, gains in self.gains.items()}


def adapt(
    store: Store,
    settings: AdaptSettings | None = None,
    *,
    ensemble: FloatArray | None = None,
    passes: Passes | None = None,
    hear: Callable[[str], Passes] | None = None,
    progress: Progress = SILENT,
) -> Adaptation:
    """Compare adaptations on the clips of a store; with `passes`, those that run the encoder too,
    and with `hear`, which runs the clips of a reference, what these cost there.

    A comparison of some methods or folds goes by another name than that of all of them.
    """
    asked = AdaptSettings() if settings is None else settings
    problem = problem_of(store, rows_of(store, asked.folds), ensemble=ensemble, passes=passes)
    problem, division = _divided(asked, problem)
    there = offered(problem)
    held, told = _references(asked, problem, progress)
    if held and problem.contributions is not None:
        there = [*there, *kept_entries(held, asked.max_loss)]
    entries = _asked_entries(asked, problem, there)
    named = entries if asked.methods and entries != there else []
    name = asked.name or name_of_part(named, asked.folds, asked.split.rpartition("#")[2])
    how = Division(allow_missing=asked.allow_missing)
    places = heard(elsewhere(told or held, problem), hear)
    outcomes = compare(
        problem, division, entries, seeds=asked.seeds, how=how, references=places, progress=progress
    )
    found = verdicts(problem, division, outcomes, seed=asked.seeds[0])
    notes = _notes(problem, division, asked.seeds, store.heard_before)
    tables = [from_rows(WHOLE, found, "Adaptation on grouped folds", notes)]
    if costs := cost_rows(outcomes):
        tables.append(from_rows("adapted_costs", costs, "What every method costs on references"))
    main = next((o for o in outcomes if o.entry.key == MAIN_KEY and not o.failed), None)
    if main is not None:
        tables += [_against_table(problem, outcomes, main), *_gain_tables(store, problem, main)]
        if asked.draws:
            how = replace(how, seed=asked.seeds[0])
            tables.append(chosen_table(problem, division, main, how, asked.draws, progress))
    splits = list[OnSplit]()
    if asked.harder and main is not None:
        first = division.source, found
        splits = on_all_splits(problem, first, asked.harder, asked.n_folds, asked.seeds, progress)
        tables.append(from_rows(HARDER, splits, "The main method on harder splits"))
    if asked.shots:
        tables.append(few_shot_table(problem, division, outcomes, asked, progress))
    if asked.retention and problem.contributions is not None:
        grid = retention_grid(problem)
        kept = retention_direct(problem, division, grid, asked.seeds[0], progress)
        tables.append(retention_table("direct", kept))
    return Adaptation(
        name,
        [_renamed(table, name) for table in tables],
        _result(problem, division, found, asked.seeds, name, store.heard_before),
        {} if main is None else main.gains,
        outcomes,
        None if main is None else next(row for row in found if row["key"] == main.entry.key),
        splits,
    )


def _asked_entries(
    asked: AdaptSettings, problem: Problem, there: Sequence[Entry]
) -> Sequence[Entry]:
    if asked.methods:
        return find_entries(asked.methods, there, skip_missing=asked.skip_missing)
    return there if asked.every_method else main_entries(problem, there)


def _divided(asked: AdaptSettings, problem: Problem) -> tuple[Problem, Folds]:
    """The folds of the table; harder ones that cannot be made are refused before anything is
    fitted."""
    for split in asked.harder:
        divide(problem, split, asked.n_folds, asked.seeds[0])
    return divide(problem, asked.split, asked.n_folds, asked.seeds[0])


def _references(
    asked: AdaptSettings, problem: Problem, progress: Progress
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Runs that are kept, and runs that only say what is lost, as folders."""
    model = None if problem.streams is None else problem.streams.passes.model
    about = problem.about["model"]
    kept = with_synthetic(asked.keep, about, model, progress)
    return kept, with_synthetic(asked.cost, about, model, progress)


def name_of_part(entries: Sequence[Entry], folds: Sequence[str], split: str = "") -> str:
    """`adapted` for everything, else `adapted_coarse+ridge_fold-4`; a long name is cut."""
    keys = [entry.key for entry in entries if entry.key != REFERENCE]
    parts = (["+".join(keys)] if entries else []) + [f"fold-{fold}" for fold in folds]
    name = "_".join([WHOLE, *(part or REFERENCE for part in parts)])
    if split:
        name += "_by-" + split.replace(":", "-")
    if len(name) <= 80:
        return name
    return f"{name[:70]}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def _renamed(table: Table, name: str) -> Table:
    """The table of a part under the name of the part."""
    if name == WHOLE:
        return table
    rest = table.name.removeprefix(WHOLE).removeprefix("_")
    return Table(f"{name}_{rest}" if rest else name, table.columns, table.caption, table.notes)


def few_shot_table(
    problem: Problem,
    division: Folds,
    outcomes: Sequence[Outcome],
    asked: AdaptSettings,
    progress: Progress = SILENT,
) -> Table:
    """The main methods with few training clips a class."""
    entries = [outcome.entry for outcome in outcomes if not outcome.failed]
    wanted = find_entries((MAIN_KEY, *FEW_SHOT), entries, skip_missing=True)
    out = []
    for n in asked.shots:
        try:
            found = compare(
                problem,
                division,
                wanted,
                seeds=asked.seeds,
                how=Division(shots=n),
                progress=progress,
            )
        except InputError as error:
            raise InputError(f"{n} shots: {error}") from error
        rows = verdicts(problem, division, found, seed=asked.seeds[0])
        out += [{"shots": n, **row} for row in rows]
    return from_rows("adapted_few_shot", out, "Few clips a class")


def _against_table(problem: Problem, outcomes: Sequence[Outcome], main: Outcome) -> Table:
    entries = [o.entry for o in outcomes if not o.failed and o is not main]
    entries.sort(key=lambda entry: entry.label)
    pairs = [against(problem, outcomes, main.entry.key, entry.key) for entry in entries]
    return from_rows("adapted_against", pairs, f"{main.entry.label} against every other method")


def _gain_tables(store: Store, problem: Problem, main: Outcome) -> list[Table]:
    first = next(iter(main.gains.values()))
    texts, vectors = store.texts()
    rows = moved_components(problem, first, texts, None if vectors is None else np.asarray(vectors))
    units = [
        {"fold": fold, **row} for fold, found in main.gains.items() for row in moved_units(found)
    ]
    note = (f"gains of fold {next(iter(main.gains))}",)
    return [
        from_rows("gains_components", rows, "Components that moved most", note),
        from_rows("gains_units", units, "Gains of every unit"),
    ]


def _notes(
    problem: Problem, division: Folds, seeds: Sequence[int], heard: HeardBefore | None
) -> tuple[str, ...]:
    trained = [heard["note"]] if heard is not None and heard["note"] else []
    if problem.by_centroids:
        trained.append(
            "the model has no text side: classes are centroids of the training clips that nothing "
            "was chosen by, and 'zero-shot' stands for the nearest of them without adaptation"
        )
    return (
        f"{len(problem)} clips, {len(problem.classes)} classes, {len(set(problem.groups))} groups; "
        f"folds: {division.source}; seeds {list(seeds)}",
        "gain: top-1 less zero-shot, paired, 95% interval over groups; "
        "q: false discovery rate over the methods; gap_closed: share of the way from zero-shot to "
        "the better linear probe, where that way is clear of 0",
        "adapted methods have seen labelled training clips: they are not zero-shot",
        "units_moved, heads_moved, moved: units, heads among them and numbers other than 1 in the "
        "mean fold; stability: cosine of the edits of two folds; always, ever: units that moved in "
        "all folds, in any; capped: "
        "folds that stopped at a cap; lost: accuracy on references",
        "ece: expected calibration error at the model's temperature; ece_null: what a calibrated "
        "method would read by noise alone",
        *trained,
    )


def _result(
    problem: Problem,
    division: Folds,
    found: Sequence[Verdict],
    seeds: Sequence[int],
    name: str,
    heard: HeardBefore | None,
) -> Result:
    scores = []
    chance = 1 / len(problem.classes)
    for row in found:
        if "failed" in row:
            continue
        label, n = row["method"], row["n"]
        scores.append(Score(f"top1: {label}", row["top1"], np.nan, np.nan, n, chance))
        gain = Score(f"gain: {label}", row["gain"], row["gain_low"], row["gain_high"], n, 0.0)
        scores.append(gain)
    return Result(
        task=name,
        model=problem.about["model"]["name"],
        dataset=problem.about["dataset"]["name"],
        split=division.source,
        scores=tuple(scores),
        details={
            "table": list(found),
            "classes": list(problem.classes),
            "folds": list(division.names),
            "heard_before": heard,
        },
        provenance={**provenance.collect(seed=seeds[0]), **problem.about},
    )


def fit_whole(
    store: Store,
    method: ResiDual,
    *,
    folds: Sequence[str] | None = None,
    seed: int = 0,
    passes: Passes | None = None,
) -> Gains:
    """Gains from all clips of a store (or of these folds), to be used elsewhere."""
    problem = problem_of(store, rows_of(store, folds), passes=passes)
    split = whole_split(problem, seed)
    fitted = method.fit(problem.on(split.fit, split.held_out), split)
    if fitted.gains is None:
        raise InputError("this method fits no gains")
    return fitted.gains
