"""`residual-audio compare`: one card a model, where it fails and by which numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.output import print_json, print_table, say
from residual_audio.cli.scores import shown
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.surface.probed import ModelCards


def run(
    models: Annotated[list[str], typer.Argument(help="Models to compare.")],
    dataset: options.Dataset = None,
    root: options.Root = None,
    prompts: Annotated[
        list[str] | None, typer.Option("--prompts", help="Prompts where the text is classes.")
    ] = None,
    fold: options.Folds = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    data_option: options.DataOption = None,
    long: options.Long = "first",
    device: options.Device = "auto",
    batch_size: options.BatchSize = 8,
    seed: options.Seed = 0,
    no_cache: options.NoCache = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="JSON file for the cards.")
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Text anisotropy, alignment or audio collapse? By rule, from scale-free numbers."""
    from residual_audio.files import write_json
    from residual_audio.surface.probed import compare

    named = [options.name_dataset(dataset, root)]
    (data,) = inputs.load_datasets(named, [root] if root else None, data_option)
    with watching(quiet or json) as progress:
        found = compare(
            inputs.load_models(models, device),
            data,
            prompts=prompts or ["dataset"],
            folds=fold,
            limit=limit,
            sample=sample,
            long=long,
            batch_size=batch_size,
            cache=not no_cache,
            seed=seed,
            progress=progress,
        )
    document = found.document()
    if out is not None:
        write_json(out, document)
    if json:
        print_json(document)
    else:
        _print_cards(found)
        for note in found.remarks:
            say(f"note: {note}", err=True)
    if found.skipped:
        raise typer.Exit(3)


def _print_cards(found: ModelCards) -> None:
    """The table of the function, with verdicts first."""
    first, *others = found.cards
    rows = [["verdict", first.verdict, *(cell for card in others for cell in (card.verdict, ""))]]
    for name, value, *rest in zip(*found.table.columns.values(), strict=True):
        away = [
            shown(cell) if i % 2 == 0 else "–" if cell != cell else f"{cell:+.3f}"
            for i, cell in enumerate(rest)
        ]
        rows.append([name, shown(value), *away])
    names = [cell for card in others for cell in (card.model, f"− {first.model}")]
    print_table(["", first.model, *names], rows, f"on {found.dataset}")
    for card in found.cards:
        for what, why in card.findings:
            say(f"{card.model}: {what}: {why}")
