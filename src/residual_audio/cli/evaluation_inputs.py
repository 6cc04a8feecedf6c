"""What evaluation commands take in and print: data sets with roots and folds, tables of scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from residual_audio.cli import options
from residual_audio.cli.output import print_table

if TYPE_CHECKING:
    from residual_audio.types import Result, Score

Datasets = Annotated[
    list[str], typer.Option("--dataset", "-d", help="A data set; give it several times for more.")
]
Roots = Annotated[
    list[Path] | None,
    typer.Option("--root", help="Folder of each data set that needs one, in the same order."),
]
Folds = Annotated[
    list[str] | None, typer.Option("--fold", help="Only this fold or split; may be repeated.")
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Neither read nor write cached embeddings.")
]
Resamples = Annotated[
    int, typer.Option("--resamples", min=10, help="Bootstrap resamples behind each interval.")
]
ResultsOut = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the result files (one JSON each).")
]


def load_datasets(
    names: Sequence[str],
    roots: Sequence[Path] | None,
    data_options: list[str] | None,
    folds: Sequence[str] | None,
    limit: int | None,
) -> list[tuple[Any, str]]:
    """Data sets with the name of the part that is used."""
    from residual_audio.data.registry import dataset_card, load_dataset
    from residual_audio.errors import InputError

    given = options.parse_data_options(data_options)
    waiting = list(roots or [])
    needing = [name for name in names if name != "synthetic"]
    if len(waiting) > len(needing):
        raise InputError(
            f"{len(waiting)} --root were given for {len(needing)} data sets that need one"
        )
    found = []
    for name in names:
        root = waiting.pop(0) if name != "synthetic" and waiting else None
        # with several data sets an option goes to those that know it
        known = set(dataset_card(name).options)
        mine = given if len(names) == 1 else {k: v for k, v in given.items() if k in known}
        whole = load_dataset(name, root, **mine)
        data = whole.select(folds=folds or None, limit=limit)
        found.append((data, _split(folds, given.get("kind"), limit, len(data), len(whole))))
    return found


def _split(folds: Sequence[str] | None, kind: Any, limit: int | None, n: int, n_whole: int) -> str:
    parts = [str(kind)] if kind else []
    parts += [f"fold {'+'.join(folds)}"] if folds else []
    parts += [f"partial {n} of {n_whole}"] if limit is not None and n < n_whole else []
    return ", ".join(parts) or "all"


def load_models(names: Sequence[str], device: str) -> Iterator[Any]:
    """One at a time, so that several large models need not fit into memory together."""
    from residual_audio.models.registry import load_model

    for name in dict.fromkeys(names):
        yield load_model(name, device)


def shown(value: float | None, low: float = math.nan, high: float = math.nan) -> str:
    """`0.670 [0.62, 0.71]`, as many digits as its size asks for."""
    if value is None or math.isnan(value):
        return "–"
    digits = 1 if abs(value) >= 10 else 3 if abs(value) >= 0.01 or value == 0 else 5
    text = f"{value:.{digits}f}"
    if math.isnan(low) or math.isnan(high):
        return text
    return f"{text} [{low:.{digits - 1}f}, {high:.{digits - 1}f}]"


def print_scores(results: Sequence[Result], names: Sequence[str] | None = None) -> None:
    """One row a result, one column a score, and under each data set what chance would give."""
    columns = list(names or dict.fromkeys(s.name for r in results for s in r.scores))
    rows: list[list[str]] = []
    for place in dict.fromkeys((r.dataset, r.split) for r in results):
        here = [r for r in results if (r.dataset, r.split) == place]
        label = place[0] if place[1] == "all" else f"{place[0]} ({place[1]})"
        for result in here:
            of = _by_name(result)
            cells = [shown(s.value, s.low, s.high) if (s := of.get(n)) else "–" for n in columns]
            rows.append([result.model, label, *cells])
        first = _by_name(here[0])
        chance = [first[n].chance if n in first else None for n in columns]
        if any(c is not None for c in chance):
            rows.append(["chance", label, *(shown(c) for c in chance)])
    print_table(["model", "data", *columns], rows)


def _by_name(result: Result) -> dict[str, Score]:
    return {score.name: score for score in result.scores}


def finish(results: Sequence[Result], paths: Sequence[Path], as_json: bool, quiet: bool) -> None:
    """Say where the files are; exit 3 where clips were skipped."""
    skipped: dict[str, str] = {}
    for result in results:
        skipped |= result.details.get("skipped") or {}
    if not as_json:
        if not quiet and paths:
            typer.echo(f"written: {', '.join(str(path) for path in paths)}")
        for name, reason in list(skipped.items())[:5]:
            typer.echo(f"skipped: {name}: {reason}", err=True)
        if len(skipped) > 5:
            typer.echo(f"skipped: {len(skipped) - 5} more, named in the result files", err=True)
    if skipped:
        raise typer.Exit(3)
