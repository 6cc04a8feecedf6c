"""`residual-audio compare`: one card a model, where it fails and by which numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from residual_audio.cli import inputs, options
from residual_audio.cli.output import print_json, print_table
from residual_audio.cli.scores import shown
from residual_audio.cli.terminal import watching


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
        inputs.Part(fold, limit, sample, seed),
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
    for card in cards:
        print_table(
            ["number", "value"],
            [[name, shown(value)] for name, value in card.numbers.items()],
            f"{card.model} on {card.dataset}: {card.verdict}",
        )
        for what, why in card.findings:
            typer.echo(f"  {what}: {why}")
