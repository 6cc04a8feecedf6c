"""How little of the encoder is enough: components kept a head, heads pruned, blocks left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from residual_audio.adaptation.divisions import folds_of
from residual_audio.adaptation.early_exit import answers_after, cost_of_blocks, exit_tables
from residual_audio.adaptation.problem import problem_of
from residual_audio.adaptation.pruning import pruning_curves
from residual_audio.adaptation.retention import (
    retention_grid,
    retention_network,
    retention_table,
)
from residual_audio.judge.of_store import rows_of
from residual_audio.passes.kept import Passes
from residual_audio.progress import SILENT, Progress
from residual_audio.store import Store
from residual_audio.table import Table, from_rows


def retain_and_prune(
    store: Store,
    passes: Passes,
    *,
    folds: Sequence[str] | None = None,
    n_folds: int = 5,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Table]:
    """Inside the network: components kept a head, and heads pruned in order of their scores."""
    problem = problem_of(store, rows_of(store, folds), passes=passes)
    division = folds_of(problem.clips, n_folds, seed)
    kept = retention_network(problem, division, retention_grid(problem), seed, progress)
    curves = pruning_curves(problem, division, seed=seed, progress=progress)
    return [
        retention_table("network", kept),
        from_rows("pruning", curves, "Heads taken out of the weights: accuracy and time"),
    ]


def leave_early(
    store: Store,
    passes: Passes,
    *,
    folds: Sequence[str] | None = None,
    n_folds: int = 5,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[Table]:
    """Text accuracy after every block, and for clips that leave at their first sure answer."""
    chosen = rows_of(store, folds)
    rows = np.arange(len(store)) if chosen is None else chosen
    problem = problem_of(store, rows, passes=passes)
    division = folds_of(problem.clips, n_folds, seed)
    cost = cost_of_blocks(passes, progress=progress)
    return exit_tables(problem, answers_after(store, problem, rows, division, cost), seed=seed)
