"""What a run says about the inside of its model: tables of heads, and what removing one does."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from residual_audio.ablation.ablation import AblationSettings
from residual_audio.ablation.ablation import ablate as ablate_all
from residual_audio.ablation.effects import Effects, summary
from residual_audio.ablation.interventions import METHODS as METHODS
from residual_audio.ablation.interventions import Interventions, Method, Way, interventions_on
from residual_audio.ablation.interventions import take_out as take_out_units
from residual_audio.ablation.removal import Mode
from residual_audio.analysis.aggregate import read_head_table
from residual_audio.analysis.analysis import Options
from residual_audio.analysis.analysis import analyse as analyse_store
from residual_audio.analysis.regimes import Space, in_space, parts_in
from residual_audio.analysis.result import Analysis, analyse_head_table
from residual_audio.progress import SILENT, Progress
from residual_audio.store.by_clip import by_clip
from residual_audio.store.sampled import sampled
from residual_audio.surface.given import ModelLike
from residual_audio.surface.runs import Folds, RunLike, given_run
from residual_audio.table import Table, from_rows
from residual_audio.types import UnitLike, parse_units


def analyse(
    run: RunLike,
    metrics: str | Iterable[str] = "all",
    *,
    space: Space = "raw",
    units: str | Iterable[str] = ("heads", "blocks", "stages"),
    labels: bool = True,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Analysis:
    """Dimension, similarity, separability and statistics of every head; no model is loaded.

    `metrics` names parts (`dimension`, `separability`, `similarity`, …), `all` or a list of them;
    `units` what besides heads is described.
    `space`: heads before W_O (`raw`), after it (`projected`), or as they reach the joint embedding.

    >>> import tempfile, residual_audio as ra
    >>> run = ra.extract("nano", ra.load_dataset("synthetic", n_clips=40), tempfile.mkdtemp())
    >>> top = ra.analyse(run, "separability").heads.top("fisher_trace", 3)
    >>> len(top), "head_id" in top
    (3, True)
    """
    options = Options.of(_names(metrics), _names(units), labels, seed)
    store = in_space(sampled(by_clip(given_run(run).store), seed), space)
    return analyse_store(store, parts_in(options, space), progress)


def analyse_table(path: Path) -> Analysis:
    """The same statistics from a table of heads that somebody else has made."""
    return analyse_head_table(read_head_table(path))


def _names(given: str | Iterable[str]) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else given
    return [part.strip() for part in parts if part.strip()]


def ablate(
    run: RunLike,
    units: UnitLike | Iterable[UnitLike],
    *,
    model: ModelLike | None = None,
    method: Method | None = None,
    mode: Mode = "zero",
    folds: Folds = None,
    by: Literal["labels", "captions"] = "labels",
    progress: Progress = SILENT,
) -> Table:
    """Answers before and after each unit is taken out, with paired 95% intervals of the change.

    One row a unit: `s2.b5.h11`, a pattern, a level or a set (`mine=a+b`). With a model the network
    runs again without the unit (`exact`); from the store alone its contribution to the latent is
    taken away (`direct`). `correct` is the share of right answers, `margin` how clear they are.

    >>> import tempfile, residual_audio as ra
    >>> model = ra.load_model("nano")
    >>> run = ra.extract(model, ra.load_dataset("synthetic", n_clips=40), tempfile.mkdtemp())
    >>> found = ra.ablate(run, "s2.b5.h11", model=model)
    >>> [name for name in found.columns if name.startswith("margin")]
    ['margin_before', 'margin_after', 'margin_change', 'margin_low', 'margin_high']
    """
    given = given_run(run)
    way = Way(method or ("direct" if model is None else "exact"), mode)
    rows = given.rows(folds)
    passes = None if way.method == "direct" else given.passes(model, rows, progress)
    work = interventions_on(given.store, rows, by, passes)
    chosen = [unit.name for unit in parse_units(units, given.store.sites)]
    progress.step(f"{len(chosen)} units, {way.method}", len(work.rows))
    found = take_out_units(work, parse_units(units, given.store.sites), way, progress)
    return _table(work, found)


def ablation_study(
    run: RunLike,
    settings: AblationSettings,
    *,
    model: ModelLike | None = None,
    folds: Folds = None,
    limit: int | None = None,
    by: Literal["labels", "captions"] = "labels",
    device: str = "auto",
    progress: Progress = SILENT,
) -> list[Table]:
    """Every unit of the levels asked for, by every method, with curves and pairs: what
    `residual-audio ablate` writes."""
    given = given_run(run)
    rows = given.rows(folds, limit)
    passes = None
    if set(settings.methods) != {"direct"}:
        passes = given.passes(model, rows, progress, device)
    return ablate_all(interventions_on(given.store, rows, by, passes), settings, progress)


def _table(given: Interventions, effects: Effects) -> Table:
    rows: list[dict[str, str | float]] = []
    effects, groups = effects.by_clip(given.owners), given.of_clips(given.groups)
    changes = summary(effects, groups=groups)
    for i, change in enumerate(changes):
        row: dict[str, str | float] = {"unit": change.unit}
        for measure, (mean, low, high) in change.changes.items():
            row |= {
                f"{measure}_before": float(effects.before[measure].mean()),
                f"{measure}_after": float(effects.after[measure][i].mean()),
                f"{measure}_change": mean,
                f"{measure}_low": low,
                f"{measure}_high": high,
            }
        rows.append(row)
    notes = (
        f"{len(groups)} clips in {len(set(groups))} groups, replaced by {effects.about.mode}; "
        "low and high: paired 95% interval of the change, whole groups drawn",
    )
    return from_rows("ablation", rows, f"Answers without each unit, {effects.method}", notes)
