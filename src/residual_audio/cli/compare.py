"""`residual-audio compare`: one card a model, where it fails and by which numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.output import print_json, print_table
from residual_audio.cli.scores import shown
from residual_audio.cli.terminal import watching

if TYPE_CHECKING:
    from residual_audio.geometry.cards import ModelCard
    from residual_audio.geometry.clouds import Clouds


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
    from residual_audio.embeddings.embedder import EmbeddingSettings
    from residual_audio.embeddings.prompts import find_prompts
    from residual_audio.files import write_json
    from residual_audio.geometry.cards import compare
    from residual_audio.geometry.cloud_sources import clouds_of_model
    from residual_audio.provenance import collect

    ((data, split),) = inputs.load_datasets(
        [options.name_dataset(dataset, root)],
        [root] if root else None,
        data_option,
        inputs.ClipChoice(fold, limit, sample, seed),
    )
    chosen = find_prompts(prompts or ["dataset"], data.template)
    how = EmbeddingSettings(long, batch_size, cache=not no_cache)
    clouds = []
    for loaded in inputs.load_models(models, device):
        with watching(quiet or json) as progress:
            clouds.append(
                clouds_of_model(
                    loaded,
                    data,
                    chosen,
                    split=split,
                    embedding=how,
                    progress=progress,
                )
            )
    cards = compare(clouds, seed=seed)
    document = {
        "dataset": data.name,
        "split": split,
        "cards": [
            asdict(card)
            | {
                "verdict": card.verdict,
                "findings": [{"what": what, "why": why} for what, why in card.findings],
            }
            for card in cards
        ],
        "provenance": collect(
            dataset=data, seed=seed, models=[c.provenance.get("model") for c in clouds]
        ),
    }
    if out is not None:
        write_json(out, document)
    if json:
        print_json(document)
        return
    _print_cards(cards)
    for note in dict.fromkeys(_note(cloud) for cloud in clouds):
        if note:
            typer.echo(f"note: {note}", err=True)


def _note(cloud: Clouds) -> str:
    note = (cloud.provenance.get("heard_before") or {}).get("note")
    return f"{cloud.model} on {cloud.dataset}: {note}" if note else ""


def _print_cards(cards: list[ModelCard]) -> None:
    """One row a number, one column a model, and how far each is from the first."""
    first, *others = cards
    rows = [["verdict", first.verdict, *(cell for card in others for cell in (card.verdict, ""))]]
    for name, value in first.numbers.items():
        cells = []
        for card in others:
            number = card.numbers[name]
            cells += [shown(number), "–" if number != number else f"{number - value:+.3f}"]
        rows.append([name, shown(value), *cells])
    names = [cell for card in others for cell in (card.model, f"− {first.model}")]
    print_table(["", first.model, *names], rows, f"on {first.dataset}")
    for card in cards:
        for what, why in card.findings:
            typer.echo(f"{card.model}: {what}: {why}")
