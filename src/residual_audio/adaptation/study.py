"""The adaptation study of a run, as tables, a result and gains, in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from residual_audio import provenance
from residual_audio.adaptation.comparison import (
    REFERENCE,
    Row,
    against,
    compare,
    direct_methods,
    table,
)
from residual_audio.adaptation.methods import Method, Residual
from residual_audio.adaptation.moved import moved_components, moved_units
from residual_audio.adaptation.problem import Problem, folds_of, problem_of
from residual_audio.adaptation.pruning import pruning_curves
from residual_audio.adaptation.retention import retention_direct, retention_network
from residual_audio.data.splits import Folds
from residual_audio.errors import InputError
from residual_audio.judge.of_store import rows_of
from residual_audio.passes.kept import Passes
from residual_audio.store import Store
from residual_audio.table import Table, from_rows
from residual_audio.types import FloatArray, Gains, Result, Score

MAIN = "ResiDual heads {0–3}"
RETENTION = "Accuracy with k components a head"
CONTROLS = ("coarse, one gain a head", "rotated axes", "random axes", "output-PCA gains")


@dataclass
class Adaptation:
    """What a study leaves behind."""

    tables: list[Table]
    result: Result
    gains: dict[str, Gains] = field(default_factory=dict)
    """Fold → gains of the main method."""
    rows: list[Row] = field(default_factory=list)


def adapt(
    store: Store,
    *,
    folds: Sequence[str] | None = None,
    n_folds: int = 5,
    seeds: Sequence[int] = (0,),
    shots: Sequence[int] = (),
    names: Sequence[str] | None = None,
    ensemble: FloatArray | None = None,
    more: Callable[[Problem], list[Method]] | None = None,
    retention: bool = True,
    allow_missing: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Adaptation:
    """Compare adaptations on the clips of a store (of these official folds only, if given).

    `names` keeps only methods whose name contains one of the strings; `more` adds methods that run
    the encoder; `shots` adds few-shot curves of the main methods.
    """
    problem = problem_of(store, rows_of(store, folds), ensemble)
    division = folds_of(problem.clips, n_folds, seeds[0])
    methods = direct_methods(problem) + (more(problem) if more is not None else [])
    if names:
        methods = [m for m in methods if m.name == REFERENCE or any(n in m.name for n in names)]
    rows = compare(
        problem,
        division,
        methods,
        seeds=seeds,
        allow_missing=allow_missing,
        progress=progress,
    )
    found = table(problem, division, rows, seed=seeds[0])
    main = from_rows(
        "adapted", found, "Adaptation on grouped folds", _notes(problem, division, seeds)
    )
    tables = [main]
    done = {row.method.name for row in rows if not row.failed}
    if MAIN in done:
        pairs = [against(problem, rows, MAIN, other) for other in sorted(done - {MAIN})]
        tables.append(from_rows("adapted_against", pairs, f"{MAIN} against every other method"))
    gains = next((row.gains for row in rows if row.method.name == MAIN), {})
    tables += _gain_tables(store, problem, gains)
    if shots:
        tables.append(few_shot_table(problem, division, rows, shots, seeds, progress))
    if retention and problem.contributions is not None:
        kept = retention_direct(problem, division, *retention_grid(problem), seeds[0])
        tables.append(from_rows("retention_direct", kept, RETENTION))
    return Adaptation(tables, _result(store, problem, division, found, seeds), gains, rows)


def retention_grid(problem: Problem) -> tuple[list[int], list[list[int]]]:
    """Numbers of components, and every stage alone and all of them."""
    widest = max(site.d_head for site in problem.sites)
    ks = sorted({1, 2, 3, 4, 6, 8, 12, 16, 20, widest} & set(range(1, widest + 1)))
    stages = sorted({site.stage for site in problem.sites})
    return ks, [[s] for s in stages] + [stages]


def retain_and_prune(
    store: Store,
    passes: Passes,
    *,
    folds: Sequence[str] | None = None,
    n_folds: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> list[Table]:
    """Inside the network: components kept a head, and heads pruned in order of their scores."""
    problem = problem_of(store, rows_of(store, folds))
    division = folds_of(problem.clips, n_folds, seed)
    ks, sets = retention_grid(problem)
    kept = retention_network(problem, division, passes, ks, sets, seed, progress)
    curves = pruning_curves(problem, division, passes, seed=seed, progress=progress)
    return [
        from_rows("retention_network", kept, RETENTION),
        from_rows("pruning", curves, "Heads taken out of the weights: accuracy and time"),
    ]


def few_shot_table(
    problem: Problem,
    division: Folds,
    rows: Sequence[Row],
    shots: Sequence[int],
    seeds: Sequence[int],
    progress: Callable[[str], None] | None,
) -> Table:
    """The main methods with few training clips a class."""
    wanted = (
        REFERENCE,
        MAIN,
        *CONTROLS,
        "ridge to texts",
        "linear probe, joint",
        "linear probe, latent",
    )
    methods = [row.method for row in rows if row.method.name in wanted and not row.failed]
    out = []
    for n in shots:
        try:
            found = compare(problem, division, methods, seeds=seeds, shots=n, progress=progress)
        except InputError as error:
            raise InputError(f"{n} shots: {error}") from error
        out += [{"shots": n, **row} for row in table(problem, division, found, seed=seeds[0])]
    return from_rows("adapted_few_shot", out, "Few clips a class")


def _gain_tables(store: Store, problem: Problem, gains: dict[str, Gains]) -> list[Table]:
    if not gains:
        return []
    first = next(iter(gains.values()))
    texts, vectors = store.texts()
    rows = moved_components(problem, first, texts, None if vectors is None else np.asarray(vectors))
    units = [{"fold": fold, **row} for fold, found in gains.items() for row in moved_units(found)]
    note = (f"gains of fold {next(iter(gains))}",)
    return [
        from_rows("gains_components", rows, "Components that moved most", note),
        from_rows("gains_units", units, "Gains of every unit"),
    ]


def _notes(problem: Problem, division: Folds, seeds: Sequence[int]) -> tuple[str, ...]:
    return (
        f"{len(problem)} clips, {len(problem.classes)} classes, {len(set(problem.groups))} groups; "
        f"folds: {division.source}; seeds {list(seeds)}",
        "gain: top-1 less zero-shot, paired, 95% interval over groups; "
        "gap_closed: share of the way from zero-shot to the better linear probe",
        "adapted methods have seen labelled training clips: they are not zero-shot",
    )


def _result(
    store: Store,
    problem: Problem,
    division: Folds,
    found: Sequence[dict[str, Any]],
    seeds: Sequence[int],
) -> Result:
    scores = []
    chance = 1 / len(problem.classes)
    for row in found:
        if "failed" in row:
            continue
        name = row["method"]
        scores.append(Score(f"top1: {name}", row["top1"], np.nan, np.nan, row["n"], chance))
        scores.append(
            Score(f"gain: {name}", row["gain"], row["gain_low"], row["gain_high"], row["n"], 0.0)
        )
    return Result(
        task="adapted",
        model=store.model_info.name,
        dataset=store.dataset_info.name,
        split=division.source,
        scores=tuple(scores),
        details={
            "table": list(found),
            "classes": list(problem.classes),
            "folds": list(division.names),
        },
        provenance=provenance.collect(seed=seeds[0])
        | {"model": asdict(store.model_info), "dataset": asdict(store.dataset_info)},
    )


def fit_whole(
    store: Store,
    method: Residual,
    *,
    folds: Sequence[str] | None = None,
    seed: int = 0,
    held_out: float = 0.2,
) -> Gains:
    """Direct-path gains from all clips of a store (or of these folds), to be used elsewhere."""
    from residual_audio.adaptation.problem import Split
    from residual_audio.data.splits import grouped_split

    problem = problem_of(store, rows_of(store, folds))
    mask = grouped_split(problem.clips, held_out, seed)
    everyone = np.arange(len(problem))
    split = Split("all", everyone[~mask], everyone[mask], everyone[:2])
    fitted = method(problem, split, seed)
    assert fitted.gains is not None
    return fitted.gains
