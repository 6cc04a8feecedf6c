"""Published protocols run by name, as they were published and corrected, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.protocols.protocol_run import run_protocol
from residual_audio.adaptation.protocols.protocol_tables import protocol_result, protocol_tables
from residual_audio.adaptation.protocols.registry import find_protocol
from residual_audio.adaptation.protocols.stratified import stratified_sample
from residual_audio.progress import SILENT, Progress
from residual_audio.surface.given import ModelLike
from residual_audio.surface.runs import Folds, RunLike, given_run
from residual_audio.table import Table
from residual_audio.types import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class ProtocolResult:
    """What a published protocol gave on a run; `ra.protocol` makes one.

    >>> import residual_audio as ra
    >>> rows = ra.Table("protocol", {"variant": ["corrected"], "accuracy": [0.5]})
    >>> ra.ProtocolResult(rows, rows, ra.Result("t", "m", "d", "s", ()), ("mean kept",)).differences
    ('mean kept',)
    """

    table: Table
    """Baseline, sets of stages, what is chosen, linear: both variants."""
    folds: Table
    """Every fold, set, rate and number of epochs."""
    result: Result
    differences: tuple[str, ...]
    """What differs between the variants, and why."""

    def plot(self, what: str | None = None) -> Figure:
        return self.table.plot(what)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def protocol(
    name: Literal["paolini", "arcioni"],
    run: RunLike,
    *,
    model: ModelLike | None = None,
    folds: Folds = None,
    n: int | None = None,
    n_folds: int = 5,
    sweep: bool = False,
    progress: Progress = SILENT,
) -> ProtocolResult:
    """Run a published protocol on the clips of a run, as published and corrected.

    `n` clips are drawn class by class, by default as many as the publication drew from the data
    set. Finished cells are kept in the run's folder: a stopped call goes on. `sweep` adds the grid
    of rates and epochs. Runs the encoder, so the sounds are heard again.

    >>> import residual_audio as ra
    >>> ra.protocol("paolini", "runs/nowhere", n=200)
    Traceback (most recent call last):
    residual_audio.errors.StoreError: no store in 'runs/nowhere': neither manifest.json nor ...
    """
    asked, given = find_protocol(name), given_run(run)
    rows = given.rows(folds)
    rows = np.arange(len(given.store)) if rows is None else rows
    wanted = n or asked.n_samples(given.store.dataset_info.name)
    if wanted is not None:
        labels = [given.store.clips["label"][int(i)] for i in rows]
        rows = rows[stratified_sample(labels, wanted, asked.seed)]
    passes = given.passes(model, rows, progress)
    problem = problem_of(given.store, rows, passes=passes)
    kept = Path(given.folder) / "protocols" / name
    found = run_protocol(problem, asked, kept, n_folds=n_folds, sweep=sweep, progress=progress)
    table, cells = protocol_tables(problem, asked, found, asked.seed)
    result = protocol_result(problem, asked, found, given.store.heard_before, asked.seed)
    return ProtocolResult(table, cells, result, asked.differences)
