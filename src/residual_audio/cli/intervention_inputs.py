"""What `ablate`, `reweight` and `sweep` share: a run with a store, and the model that made it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residual_audio.cli.output import print_table

if TYPE_CHECKING:
    from residual_audio.passes.kept import Passes
    from residual_audio.store import Store
    from residual_audio.table import Table

Run = Annotated[
    Path, typer.Argument(help="Run folder with a store that has heads and direct (see `extract`).")
]
Folds = Annotated[
    list[str] | None, typer.Option("--fold", help="Only clips of this official fold; repeatable.")
]
AsModel = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="The model that made the store, if it goes by another name."
    ),
]


def load_passes_of(
    store: Store,
    rows: Any,
    model: str | None,
    root: Path | None,
    data_options: dict[str, Any],
    device: str,
    quiet: bool,
) -> Passes:
    """The model and data set that a store was made from, and the features of its clips."""
    from residual_audio.data.registry import load_dataset
    from residual_audio.models.registry import load_model
    from residual_audio.passes.kept import load_passes
    from residual_audio.passes.loop import Hearing

    loaded = load_model(model or store.model_info.name, device)
    dataset = load_dataset(store.dataset_info.name, root, **data_options)
    ids = [str(store.clips["id"][i]) for i in (range(len(store)) if rows is None else rows)]
    heard = Hearing(store.run_info.long, batch_size=16)
    return load_passes(loaded, dataset, ids, heard, sha256=store.model_info.sha256)


def show_table(table: Table, columns: Sequence[str], limit: int | None = None) -> None:
    """Some columns of a table on the terminal."""
    rows = [[_shown(row.get(c)) for c in columns] for row in list(table.rows())[:limit]]
    print_table(columns, rows, table.caption)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        if value != value:
            return "–"
        return f"{value:.4f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)
