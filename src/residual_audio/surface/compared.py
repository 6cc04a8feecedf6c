"""Runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from residual_audio.analysis.run_comparison import RunComparison, compare_stores
from residual_audio.errors import InputError
from residual_audio.progress import SILENT, Progress
from residual_audio.seals import prove_file
from residual_audio.surface.runs import Run, RunLike, given_run
from residual_audio.table import Table, read_csv


def compare_runs(
    runs: Sequence[RunLike] | Mapping[str, RunLike],
    *,
    n: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> RunComparison:
    """Dimension, L/N, EVR1 and Fisher ratio of several runs at the same number of clips.

    Runs go by the names of their folders, or by those of a mapping; where `ablate` has been, what
    each block is worth stands beside it. Encoders of one topology are
    compared by stage and paired over heads, others by quarters of their depth.

    >>> import tempfile, residual_audio as ra
    >>> def of_seed(seed):
    ...     sounds = ra.load_dataset("synthetic", n_clips=40, seed=seed)
    ...     return ra.extract("nano", sounds, tempfile.mkdtemp())
    >>> found = ra.compare_runs({"one": of_seed(0), "other": of_seed(1)})
    >>> found.n_clips, found.same_topology, len(found.places)
    (40, True, 8)
    """
    if isinstance(runs, Mapping):
        named = {name: given_run(run) for name, run in runs.items()}
    else:
        given = [given_run(run) for run in runs]
        named = {run.folder.name: run for run in given}
        if len(named) < len(given):
            raise InputError("two runs have the same name: give a mapping of names to runs")
    return compare_stores(
        {name: run.store for name, run in named.items()},
        n=n,
        ablations={name: found for name, run in named.items() if (found := _ablated(run))},
        seed=seed,
        progress=progress,
    )


def _ablated(run: Run) -> Table | None:
    """Blocks taken out one by one, where `ablate` has been: exactly, or else on the direct path."""
    for method in ("exact", "direct"):
        path = run.folder / "tables" / f"ablation_attention_{method}.csv"
        if path.is_file():
            return read_csv(prove_file(path))
    return None
